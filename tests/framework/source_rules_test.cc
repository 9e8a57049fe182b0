// Rules over the text of all sources that no compiler checks.
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/source_files.h"

namespace belfry::test {
namespace source_rules_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Calls in `file` to one of `functions`.
std::vector<std::string> calls(const SourceFile& file, const std::vector<std::string>& functions) {
  const std::string code = code_only(file.text);
  std::vector<std::string> found;
  for (const std::string& function : functions) {
    if (uses(code, function, /*call=*/true)) found.push_back(cat(file.path, " calls ", function));
  }
  return found;
}

bool has_main(const SourceFile& file) {
  return code_only(file.text).find("int main(") != std::string::npos;
}

// The ways to end a process. A library throws instead, so that other devices are cleaned up.
const std::vector<std::string> kExits = {"abort", "exit",       "_exit",
                                         "_Exit", "quick_exit", "terminate"};
// Ways to run a shell.
const std::vector<std::string> kShells = {"system", "popen"};

// How `file` opens files, in words.
std::vector<std::string> file_access(const SourceFile& file) {
  std::vector<std::string> found = calls(file, {"fopen", "freopen", "fdopen", "gzopen"});
  const std::string code = code_only(file.text);
  for (const char* word : {"ifstream", "ofstream", "fstream"}) {
    if (uses(code, word, /*call=*/false)) found.push_back(cat(file.path, " uses ", word));
  }
  for (const std::string& name : includes(file.text)) {
    if (name == "<fcntl.h>") found.push_back(cat(file.path, " includes ", name));
  }
  return found;
}

TEST(Sources, EndTheProcessInMainOnly) {
  for (const SourceFile& file : source_files(kShipped)) {
    // Programs, and the file for hanging processes and children that did not start, may exit.
    if (has_main(file) || file.path == "framework/base/end_process.cc") continue;
    EXPECT_THAT(calls(file, kExits), IsEmpty());
  }
}

TEST(Sources, RunNoShell) {
  std::vector<std::string> folders = kShipped;
  folders.push_back("tests");
  for (const SourceFile& file : source_files(folders)) EXPECT_THAT(calls(file, kShells), IsEmpty());
}

TEST(Sources, OpenFilesThroughTheFileSystemSeamOnly) {
  for (const SourceFile& file : source_files(kShipped)) {
    if (file.path == "framework/base/file_system.cc") {
      EXPECT_THAT(file_access(file), Not(IsEmpty())) << "the check is blind, or the file has moved";
    } else {
      EXPECT_THAT(file_access(file), IsEmpty());
    }
  }
}

// The lines of `file` whose literals name a flag: "--threads". Those of srun are no flags of ours.
std::vector<std::string> named_flags(const SourceFile& file) {
  std::vector<std::string> found;
  for (const std::string_view line : split(file.text, '\n')) {
    bool quoted = false;
    for (std::size_t i = 0; i + 2 < line.size(); ++i) {
      if (line[i] == '"') quoted = !quoted;
      if (!quoted && line.substr(i).starts_with("//")) break;
      if (quoted && line.substr(i).starts_with("--") && std::islower(line[i + 2]) &&
          !line.substr(0, i).ends_with("srun "))
        found.push_back(cat(file.path, ": ", line));
    }
  }
  return found;
}

// Users of a library may have no command line; programs turn options into flags.
TEST(Sources, OfLibrariesSpeakOfOptionsNotOfFlags) {
  for (const SourceFile& file :
       source_files({"framework", "ops", "towers", "allreduce", "trainers/util", "trainers/options",
                     "trainers/data", "trainers/machine", "trainers/optimizers", "trainers/core",
                     "trainers/models", "trainers/callbacks", "trainers/kinds", "trainers/runs",
                     "trainers/modes"}))
    EXPECT_THAT(named_flags(file), IsEmpty());
  EXPECT_THAT(named_flags({"x.cc", "f(\"use --threads\");  // of \"--b\""}), SizeIs(1));
}

// The literals that a file gives to the functions of option_name.h and option_error.h.
std::vector<std::string> named_options(const SourceFile& file) {
  std::vector<std::string> names;
  const std::string_view text = file.text;
  for (const std::string_view call : {"the_option(\"", "option_name(\"", "about_option(\""})
    for (std::size_t at = text.find(call); at != text.npos; at = text.find(call, at + 1)) {
      const std::size_t begin = at + call.size();
      names.emplace_back(text.substr(begin, text.find('"', begin) - begin));
    }
  return names;
}

// "f(x)" for "f(", a line break and "x)".
std::string with_arguments_beside_calls(std::string text) {
  for (std::size_t at = text.find("(\n"); at != text.npos; at = text.find("(\n", at + 1))
    text.erase(at + 1, text.find_first_not_of(" \n", at + 1) - at - 1);
  return text;
}

// Any program can print the error. So the option is a flag of all programs or of `belfry`, or a
// header beside the file has it.
TEST(Sources, OfLibrariesNameOptionsThatThereAre) {
  const std::vector<SourceFile> files =
      source_files({"framework", "ops", "towers", "allreduce", "trainers"});
  const std::set<std::string> kWithFlags = {"trainers/flags", "trainers/program",
                                            "trainers/commands"};
  std::set<std::string> flags;
  const auto add_names = [&](const std::string& text, const std::string& before) {
    for (std::size_t at = text.find(before); at != text.npos; at = text.find(before, at + 1)) {
      const std::size_t begin = at + before.size();
      flags.insert(text.substr(begin, text.find('"', begin) - begin));
    }
  };
  std::map<std::string, std::string> headers;  // of a folder, one behind the other
  for (const SourceFile& file : files) {
    if (file.path.ends_with(".h")) headers[file.folder()] += code_only(file.text);
    const std::string text = with_arguments_beside_calls(file.text);
    for (const char* row : {"{.name = \"", "_row(\"", "every_option(\""}) add_names(text, row);
    if (!kWithFlags.contains(file.folder())) continue;
    add_names(file.text, "\"--");
  }
  int named = 0;
  for (const SourceFile& file : files) {
    if (!file.path.ends_with(".cc")) continue;
    for (const std::string& name : named_options(file)) {
      ++named;
      EXPECT_TRUE(flags.contains(name) || uses(headers[file.folder()], name, /*call=*/false))
          << file.path << " names the option " << name
          << ", and neither a flag of all programs nor "
          << "a header of " << file.folder() << " has it";
    }
  }
  EXPECT_GT(named, 20);
  EXPECT_THAT(named_options({"x.cc", "f(the_option(\"a_b\"), about_option(\"c\", 1));"}),
              ElementsAre("a_b", "c"));
}

// A replayed launch would otherwise compute with the step of its capture.
TEST(Sources, OfGpuKernelsReadTheStepFromMemory) {
  int kernels = 0;
  for (const SourceFile& file : source_files(kShipped)) {
    if (!file.path.ends_with(".cu")) continue;
    ++kernels;
    EXPECT_EQ(code_only(file.text).find("p.step()"), std::string::npos) << file.path;
  }
  EXPECT_GT(kernels, 5);
}

TEST(Sources, ThatBreakTheseRulesAreFound) {
  EXPECT_THAT(calls({"a.cc", "void f() { std::abort(); exit (1); }"}, kExits),
              ElementsAre("a.cc calls abort", "a.cc calls exit"));
  EXPECT_THAT(calls({"a.cc", "int n = 1'000; int c = '\"'; int r = ::system(\"ls\");"}, kShells),
              ElementsAre("a.cc calls system"));
  EXPECT_THAT(file_access({"a.cc", "#include <fcntl.h>\nstd::ofstream out(path);"}),
              ElementsAre("a.cc uses ofstream", "a.cc includes <fcntl.h>"));
  EXPECT_TRUE(has_main({"a.cc", "int main(int argc, char** argv) { return f(argc, argv); }"}));
}

TEST(Sources, ThatOnlyMentionTheseNamesAreAccepted) {
  const SourceFile file = {"a.cc",
                           "// never exit() here\n/* popen() */ auto s = \"abort(\\\"\";\n"
                           "auto raw = R\"x(\"exit()\")x\"; strand.exit(); local_file_system();\n"
                           "bool on_exit(int); int system = 0; int main_exit();"};
  EXPECT_THAT(calls(file, kExits), IsEmpty());
  EXPECT_THAT(calls(file, kShells), IsEmpty());
  EXPECT_THAT(file_access(file), IsEmpty());
  EXPECT_FALSE(has_main(file));
}

}  // namespace source_rules_test
}  // namespace belfry::test
