// Rules over the documents: links lead somewhere, and each folder of sources says what lives there.
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"

namespace belfry::test {
namespace docs_test {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

const fs::path kRoot = BELFRY_SOURCE_DIR;
const std::set<fs::path> kCode = {".cc", ".h", ".cu", ".cuh"};
const std::vector<std::string> kFolders = {"framework", "ops",   "towers",  "allreduce", "trainers",
                                           "examples",  "tests", "scripts", "docs"};

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<fs::path> documents(const std::set<fs::path>& extensions = {".md"}) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(kRoot))
    if (extensions.contains(entry.path().extension())) found.push_back(entry.path());
  for (const std::string& folder : kFolders)
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
      if (extensions.contains(entry.path().extension())) found.push_back(entry.path());
  return found;
}

// Links of `text`, a document of `folder`, that lead nowhere.
std::vector<std::string> broken_links(const std::string& text, const fs::path& folder) {
  static const std::regex link(R"(\]\(([^)#\s]+)[^)\s]*\))");
  std::vector<std::string> broken;
  for (std::sregex_iterator match(text.begin(), text.end(), link), end; match != end; ++match) {
    const std::string target = (*match)[1];
    if (target.find("://") == std::string::npos && !fs::exists(folder / target))
      broken.push_back(target);
  }
  return broken;
}

TEST(Documents, LinkToWhatIsThere) {
  ASSERT_GT(documents().size(), 20u);
  for (const fs::path& path : documents())
    EXPECT_THAT(broken_links(contents(path), path.parent_path()), IsEmpty()) << path;
  EXPECT_THAT(
      broken_links("[a](framework) [b](https://x.y/z) [c](gone.md#top) [d](also/gone.h)", kRoot),
      UnorderedElementsAre("gone.md", "also/gone.h"));
}

TEST(Documents, OfEachFolderOfSourcesSayWhatToReadFirst) {
  for (const char* folder : {"framework", "ops", "towers", "allreduce", "trainers"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      if (entry.path().extension() != ".cc") continue;
      EXPECT_TRUE(fs::exists(entry.path().parent_path() / "README.md")) << entry.path();
    }
  for (const fs::path& path : documents()) {
    const std::string folder = path.lexically_relative(kRoot).begin()->string();
    const bool has_sources = folder != "README.md" && folder != "docs";
    if (path.filename() != "README.md" || !has_sources) continue;
    EXPECT_THAT(contents(path), HasSubstr("first")) << path;
  }
}

// Whether `name` stands in the text as a word of its own.
bool is_named(const std::string& text, const std::string& name) {
  const auto is_letter = [](char c) { return c == '_' || std::isalnum(c) != 0; };
  for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1))
    if ((at == 0 || !is_letter(text[at - 1])) && !is_letter(text[at + name.size()])) return true;
  return false;
}

// `ops` is left out: its files are called as their ops.
TEST(Documents, OfEachFolderOfSourcesNameEachOfItsFiles) {
  for (const char* folder : {"framework", "ops", "towers", "allreduce", "trainers", "examples"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const fs::path path = entry.path(), parent = path.parent_path();
      if (!kCode.contains(path.extension())) continue;
      const fs::path readme = parent / "README.md";
      if (parent == kRoot / "ops" || !fs::exists(readme)) continue;
      std::string name = path.stem();
      if (name.ends_with("_impl")) name.resize(name.size() - std::string("_impl").size());
      const std::string text = contents(readme);
      EXPECT_TRUE(is_named(text, name) || is_named(text, name + "_impl"))
          << readme << " lacks " << name;
    }
  EXPECT_TRUE(is_named("`a_b.h` and", "a_b"));
  EXPECT_FALSE(is_named("`a_bc.h` and x_a_b", "a_b"));
}

bool is_of_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

std::string without_comments(const std::string& code) {
  std::string kept;
  for (const std::string_view line : split(code, '\n'))
    kept.append(line.substr(0, line.find("//"))).append("\n");
  return kept;
}

// Words, "::" and single characters.
std::vector<std::string> tokens(const std::string& text) {
  std::vector<std::string> found;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i++;
    if (std::isspace(static_cast<unsigned char>(text[begin]))) continue;
    if (is_of_word(text[begin]))
      while (i < text.size() && is_of_word(text[i])) ++i;
    else if (text.compare(begin, 2, "::") == 0)
      ++i;
    found.push_back(text.substr(begin, i - begin));
  }
  return found;
}

// By class, all classes of one name together: the words of its body, and of its bases' names.
struct Classes {
  std::map<std::string, std::set<std::string>> words, bases;
};

void read_classes(const std::string& code, Classes& classes) {
  std::vector<std::string> open;  // class of each open brace, or ""
  std::string name;               // name of the class whose head is read
  bool head = false, has_bases = false;
  for (const std::string& token : tokens(without_comments(code))) {
    for (const std::string& around : open) classes.words[around].insert(token);
    if (token == "{") open.push_back(head ? name : "");
    if (token == "}" && !open.empty()) open.pop_back();
    if (token == "{" || token == ";" || (token == ">" && !has_bases)) head = false;
    has_bases = head && (has_bases || token == ":");
    if (has_bases) classes.bases[name].insert(token);
    if (head && !has_bases && token != "final") name = token;
    if (token == "class" || token == "struct" || token == "enum") head = true;
  }
}

// Names Class::word in `text` whose word neither the class nor a base has.
std::vector<std::string> unknown_members(const std::string& text, Classes& classes) {
  std::vector<std::string> unknown;
  const std::vector<std::string> all = tokens(text);
  for (std::size_t i = 0; i + 2 < all.size(); ++i) {
    const auto has = [&](const std::string& name) {
      return classes.words.contains(name) && classes.words[name].contains(all[i + 2]);
    };
    if (all[i + 1] == "::" && classes.words.contains(all[i]) && !has(all[i]) &&
        std::ranges::none_of(classes.bases[all[i]], has))
      unknown.push_back(cat(all[i], "::", all[i + 2]));
  }
  return unknown;
}

TEST(Documents, AndCommentsNameMembersThatAreThere) {
  Classes classes, small;
  std::map<fs::path, std::string> texts;
  for (const fs::path& path : documents()) texts[path] = contents(path);
  for (const fs::path& path : documents(kCode)) {
    const std::string code = contents(path);
    read_classes(code, classes);
    for (const std::string_view line : split(code, '\n'))
      texts[path].append(line.substr(std::min(line.find("//"), line.size()))).append("\n");
  }
  for (const auto& [path, text] : texts)
    EXPECT_THAT(unknown_members(text, classes), IsEmpty()) << path;
  read_classes("class A final : B { enum class E { kOne }; }; struct B { int b; };", small);
  EXPECT_THAT(unknown_members("A::b, A::E::kOne, E::kTwo, B::f, C::g", small),
              ElementsAre("E::kTwo", "B::f"));
}

std::set<std::string> matches(const std::string& text, const char* pattern) {
  const std::regex expression(pattern);
  std::set<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), expression), end; match != end; ++match)
    found.insert((*match)[1]);
  return found;
}

// The variables of the environment that a source names, if it reads or sets any: strings of
// capitals with an underscore, less functions of MPI, and what getenv() itself gets.
std::set<std::string> variables_in(const std::string& code) {
  const auto has = [&](const char* text) { return code.find(text) != code.npos; };
  if (!has("getenv") && !has("setenv") && !has("nvironment") && !has("Variable[]")) return {};
  std::set<std::string> names = matches(code, R"re((?:getenv|environment)\("([A-Z_]+)"\))re");
  for (const std::string& name : matches(code, R"re("([A-Z][A-Z0-9]*_[A-Za-z0-9_]+)")re"))
    if (!std::regex_match(name, std::regex("MPI_[A-Z][a-z].*"))) names.insert(name);
  return names;
}

TEST(Documents, NameTheVariablesOfTheEnvironment) {
  std::set<std::string> read;
  for (const fs::path& path : documents(kCode)) {
    const std::string folder = path.lexically_relative(kRoot).begin()->string();
    if (folder != "tests" && folder != "examples") read.merge(variables_in(contents(path)));
  }
  EXPECT_GT(read.size(), 20u);
  std::set<std::string> named;
  std::istringstream page(contents(kRoot / "docs/environment.md"));
  for (std::string line; std::getline(page, line);)
    if (line.starts_with("| `"))
      named.merge(matches(line.substr(0, line.find(" | ")), "`([A-Z][A-Za-z0-9_]+)`"));
  EXPECT_EQ(read, named);
  EXPECT_THAT(variables_in(R"(getenv("HOME"); "A_B"; "AB"; "MPI_Send")"),
              UnorderedElementsAre("HOME", "A_B"));
  EXPECT_THAT(variables_in(R"("A_B")"), IsEmpty());
}

}  // namespace docs_test
}  // namespace belfry::test
