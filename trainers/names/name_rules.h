// Files of names: how weights of another program are called here, and what happens between. A line
// is one of these; empty ones, and those that begin with '#', say nothing.
//
//   THEIRS = OURS [: STEP, STEP, ...]    a rule, for import and, backwards, for export
//   ignore PATTERN                       leaves out their tensors of such names; '*' is any text
//   let AXIS = LENGTH                    the length of an axis: a number, or that of ours: OURS[0]
//   needs OPTION=VALUE                   what a program must be told to compute as they do
//
// In the names of a rule {i} is a whole number, the same on both sides, and {i+1} is one more. In
// THEIRS, (text) may be missing; an export writes it. [q k v] stands for several tensors, one for
// each word: in THEIRS they become one of ours, in OURS one of theirs becomes them. The steps:
//
//   out in -> in out           their axes, and ours (axis_pattern.h)
//   along out                  the axis along which tensors are joined or split
//   along out = width * *      the same, with the length of each: a number, the name of a `let`, or
//                              '*', an equal share of the rest. Without lengths all are equal
//   as bf16                    their type: values are rounded to it, or from it. Otherwise only f16
//                              and bf16 become f32, and f32 becomes f64
//   frozen                     ours is not trained, as the moments of batch norm
//
// The first rule that fits a name takes it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "belfry/framework/base/dtype.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/names/axis_pattern.h"

namespace belfry {

// A name with whole numbers in it: "layer{g+1}.{b}.conv{n}.weight".
class NamePattern {
 public:
  using Numbers = std::map<std::string, std::uint64_t>;

  // Throws InvalidArgument.
  explicit NamePattern(std::string_view text);
  // The numbers for which the pattern is `name`; none if there are no such.
  std::optional<Numbers> numbers_in(std::string_view name) const;
  std::string name(const Numbers& numbers) const;
  std::vector<std::string> variables() const;  // sorted

 private:
  // Text, and a number behind it: `plus` more than `variable`. "": there is none.
  struct Piece {
    std::string text, variable;
    std::uint64_t plus = 0;
  };
  std::vector<Piece> pieces_;
};

struct NameRule {
  int line = 0;
  // The tensors of one use of the rule. Each of theirs has one or more spellings; an export writes
  // the first.
  std::vector<std::vector<NamePattern>> theirs;
  std::vector<NamePattern> ours;
  std::optional<AxisPattern> axes;
  std::string along;               // "" unless there are several of theirs or of ours
  std::vector<std::string> sizes;  // as written; none: all are equal
  std::optional<DType> their_type;
  bool trained = true;

  bool joins() const { return theirs.size() > 1; }
  bool splits() const { return ours.size() > 1; }
};

struct NameRules {
  // The axis of one of our weights that `let` names.
  struct AxisOfOurs {
    std::string weight;
    std::size_t axis = 0;
  };
  using Length = std::variant<std::int64_t, AxisOfOurs>;

  std::string name;  // "gpt2", or the path of a file
  std::vector<NameRule> rules;
  std::vector<std::string> ignored;
  std::map<std::string, Length> lengths;
  std::map<std::string, std::string> needs;  // options and their values

  // Throws InvalidArgument naming `name`, the line and what is wrong.
  static NameRules parse(std::string_view text, std::string name);
  // "gpt2.names, line 12".
  std::string place_of(const NameRule& rule) const;
};

// "gpt2", "llama", "torchvision-resnet", "vit".
std::vector<std::string> known_name_rules();
// The rules that Belfry has under this name, or those of a file. Throws InvalidArgument with the
// known names, NotFoundError and IoError.
NameRules find_name_rules(const std::string& name_or_file, FileSystem& files = local_file_system());

}  // namespace belfry
