// No class has more methods or fields of its own than a reader can keep in mind.
#include <algorithm>
#include <set>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/tests/framework/source_files.h"

namespace belfry::test {
namespace class_size_test {

using ::testing::ElementsAre;
using ::testing::IsSupersetOf;

// The members that a class declares itself. Constructors and operators are methods, unless they are
// deleted or defaulted. Static members are no fields.
struct ClassSize {
  std::string name;
  int methods = 0, fields = 0;
};

using Tokens = std::vector<std::string_view>;

// Words and single signs, without preprocessor lines.
Tokens tokens_of(std::string_view code) {
  Tokens tokens;
  bool at_line_start = true;
  for (std::size_t i = 0; i < code.size(); ++i) {
    const char c = code[i];
    if (c == '#' && at_line_start) {
      while (i < code.size() && (code[i] != '\n' || code[i - 1] == '\\')) ++i;
    } else if (in_identifier(c)) {
      const std::size_t begin = i;
      while (i + 1 < code.size() && in_identifier(code[i + 1])) ++i;
      tokens.push_back(code.substr(begin, i + 1 - begin));
    } else if (c != ' ' && c != '\n') {
      tokens.push_back(code.substr(i, 1));
    }
    if (c != ' ') at_line_start = c == '\n';
  }
  return tokens;
}

// The index behind the bracket that closes the one at `open`.
std::size_t behind(const Tokens& tokens, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < tokens.size(); ++i) {
    if (tokens[i] == "(" || tokens[i] == "{" || tokens[i] == "[") ++depth;
    if (tokens[i] == ")" || tokens[i] == "}" || tokens[i] == "]") --depth;
    if (depth == 0) return i + 1;
  }
  return tokens.size();
}

// The index behind the arguments of a template, which begin at `open`. It is `open` + 1 if the sign
// is a comparison.
std::size_t behind_angles(const Tokens& tokens, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < tokens.size(); ++i) {
    if (tokens[i] == "<") ++depth;
    if (tokens[i] == ">" && tokens[i - 1] != "-" && --depth == 0) return i + 1;
    if (tokens[i] == ";" || tokens[i] == "{") break;
    if (tokens[i] == "(") i = behind(tokens, i) - 1;
  }
  return open + 1;
}

// Finds classes by their brackets; a compiler would take a minute.
class ClassReader {
 public:
  explicit ClassReader(const std::string& text)
      : code_(code_only(text)), tokens_(tokens_of(code_)) {}

  // All classes, even those within classes and functions.
  std::vector<ClassSize> read() {
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      if (const std::size_t body = body_of_class(i)) count_members(body);
    return std::move(found_);
  }

 private:
  bool is(std::size_t i, std::string_view sign) const {
    return i < tokens_.size() && tokens_[i] == sign;
  }
  bool is_any(std::size_t i, std::initializer_list<std::string_view> signs) const {
    return i < tokens_.size() && std::ranges::find(signs, tokens_[i]) != signs.end();
  }

  // The index where the body opens of the class that is defined at `i`; 0 if none is. Leaves its
  // name in name_.
  std::size_t body_of_class(std::size_t i) {
    if (!is_any(i, {"class", "struct"}) || (i > 0 && is_any(i - 1, {"enum", "<", ","}))) return 0;
    name_.clear();
    bool bases = false;
    for (++i; i < tokens_.size(); ++i) {
      if (is(i, "{")) return i;
      if (is_any(i, {";", "=", ")", ">", "*", "&"})) return 0;
      if (is_any(i, {"(", "["})) {  // of alignas and attributes
        i = behind(tokens_, i) - 1;
      } else if (is(i, "<")) {
        i = behind_angles(tokens_, i) - 1;
      } else if (is(i, ":")) {
        const bool scope = is(i + 1, ":");
        if (scope && !bases) name_ += "::";
        bases = bases || !scope;
        if (scope) ++i;
      } else if (!bases && !is_any(i, {"final", "alignas"})) {
        name_ += tokens_[i];
      }
    }
    return 0;
  }

  void count_members(std::size_t body) {
    ClassSize size{name_};
    const std::size_t end = behind(tokens_, body) - 1;
    for (std::size_t i = body + 1; i < end;) i = count_member(i, end, size);
    found_.push_back(size);
  }

  // Counts the declaration at `i`, and returns the index behind it.
  std::size_t count_member(std::size_t i, std::size_t end, ClassSize& size) {
    if (is(i, ";")) return i + 1;
    if (is(i + 1, ":") && !is(i + 2, ":")) return i + 2;  // public:
    if (is(i, "template")) return behind_angles(tokens_, i + 1);
    const bool counts = !is_any(i, {"using", "friend", "typedef", "static_assert", "enum"}) &&
                        body_of_class(i) == 0;
    const bool is_static = is(i, "static");
    const Member member = read_member(i, end, counts);
    if (!counts) return member.end;
    if (member.method && !member.none) ++size.methods;
    if (!member.method && !is_static) size.fields += member.names;
    return member.end;
  }

  struct Member {
    std::size_t end = 0;
    bool method = false;
    bool none = false;  // deleted or defaulted
    int names = 1;      // of fields in one declaration
  };

  // Reads up to the semicolon, or to the end of a body that has none behind it.
  Member read_member(std::size_t i, std::size_t end, bool counts) const {
    Member member;
    bool value = false, pointer = false;  // to a function
    for (; i < end && !is(i, ";"); ++i) {
      if (is(i, "operator")) {
        member.method = true;
        while (!is(i + 1, "(")) ++i;
        if (is(i + 2, ")") && is(i + 3, "(")) i += 2;
      } else if (is(i, "(")) {
        pointer = pointer || (!value && is(i + 1, "*"));
        member.method = member.method || (!value && !pointer && !is(i - 1, "alignas"));
        i = behind(tokens_, i) - 1;
      } else if (is(i, "<") && !value) {
        i = behind_angles(tokens_, i) - 1;
      } else if (is(i, "=")) {
        value = true;
        member.none = member.none || is_any(i + 1, {"delete", "default"});
      } else if (is(i, ",") && !member.method) {
        ++member.names;
        value = false;
      } else if (is(i, "{")) {
        i = behind(tokens_, i) - 1;
        if ((member.method || !counts) && !is_any(i + 1, {";", ",", "{"})) break;
      }
    }
    member.end = i + 1;
    return member;
  }

  const std::string code_;
  const Tokens tokens_;
  std::string name_;
  std::vector<ClassSize> found_;
};

// Classes that give users one place for many questions: a graph, a session, a trainer.
const std::set<std::string> kOfManyMethods = {"Graph", "Session", "Trainer"};
// Classes that are filled in member by member. Several fields of one subject are a smaller class.
const std::set<std::string> kOfManyFields = {"Op", "SessionOptions", "TrainerOptions", "Trainer"};

constexpr int kMost = 20;
constexpr const char* kAdvice = ", and may have 20; make those of one subject a class of their own";

TEST(Classes, HaveAtMost20MethodsAnd20Fields) {
  std::set<std::string> many_methods, many_fields;
  for (const SourceFile& file : source_files(kShipped)) {
    for (const ClassSize& of : ClassReader(file.text).read()) {
      if (of.methods > kMost) many_methods.insert(of.name);
      if (of.fields > kMost) many_fields.insert(of.name);
      EXPECT_TRUE(of.methods <= kMost || kOfManyMethods.contains(of.name))
          << file.path << ": " << of.name << " has " << of.methods << " methods" << kAdvice;
      EXPECT_TRUE(of.fields <= kMost || kOfManyFields.contains(of.name))
          << file.path << ": " << of.name << " has " << of.fields << " fields" << kAdvice;
    }
  }
  constexpr const char* kBlind = "an exception without need, or the check is blind";
  EXPECT_THAT(many_methods, IsSupersetOf(kOfManyMethods)) << kBlind;
  EXPECT_THAT(many_fields, IsSupersetOf(kOfManyFields)) << kBlind;
}

// "A 2 1" for a class A of two methods and one field, in order of their beginnings.
std::vector<std::string> sizes(const std::string& text) {
  std::vector<std::string> found;
  for (const ClassSize& of : ClassReader(text).read())
    found.push_back(cat(of.name, " ", of.methods, " ", of.fields));
  return found;
}

TEST(Classes, AreCountedWithoutTheirInnerOnesAndBodies) {
  EXPECT_THAT(sizes("class A final : public ns::B<int, C> {\n"
                    " public:\n"
                    "  explicit A(int x) : x_(x), y_{x} { f(); g(); }\n"
                    "  A(const A&) = delete;  // void h();\n"
                    "  A& operator=(const A&) = default;\n"
                    "  int operator()(int i) const { return i; }\n"
                    "  struct Inner { void f(); int a, b = 1; } inner;\n"
                    "  template <class T, int n = 3> void g(T t) { struct InBody { int c; }; }\n"
                    "  friend void swap(A&, A&);\n"
                    " private:\n"
                    "  enum class Kind { kA, kB };\n"
                    "  static constexpr int kStatic = 3;\n"
                    "  std::map<int, std::function<void(int)>> map_ = make(), *other_ = nullptr;\n"
                    "  Result (*pointer_)(int, int) = nullptr;\n"
                    "  int x_ = f(1), y_{2};\n"
                    "};\n"),
              ElementsAre("A 3 6", "Inner 1 2", "InBody 0 1"));
  EXPECT_THAT(sizes("struct Session::State { int a; }; class Later; enum struct E { k };\n"
                    "struct P f(class Q* q); template <class T> struct Of<T*> {};"),
              ElementsAre("Session::State 0 1", "Of 0 0"));
}

}  // namespace class_size_test
}  // namespace belfry::test
