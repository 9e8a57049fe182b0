// Tensors that rules of names make of others: weights of another program under our names, or ours
// under theirs.
#pragma once
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "belfry/framework/graph/kernel.h"
#include "belfry/trainers/names/name_rules.h"

namespace belfry {

enum class RenamingWay { kToOurs, kToTheirs };

// The tensors that are renamed.
struct TensorSource {
  std::map<std::string, TensorType> types;
  std::function<std::vector<std::byte>(const std::string& name)> read;
  // For errors: "model.safetensors: tensor 'wte.weight' at byte 4096".
  std::function<std::string(const std::string& name)> place;
};

struct RenamingOptions {
  RenamingWay way = RenamingWay::kToOurs;
  // To ours: the weights that there must be. Null: their types follow from the source.
  const std::map<std::string, TensorType>* model = nullptr;
  // Leave out tensors that no rule takes, and let weights of the model be missing or of another
  // type. Without it these are errors.
  bool partial = false;
};

class RenamedTensors {
 public:
  // Reads no values, unless two tensors become one of ours: they must be equal then, as a table
  // that is stored twice. Throws InvalidArgument naming the tensor, its place, and the line of the
  // rule. `rules` must outlive it.
  RenamedTensors(TensorSource source, const NameRules& rules, const RenamingOptions& options);

  struct Target {
    TensorType type;
    bool trained = true;
    std::size_t use = 0, part = 0;  // of uses_
  };
  const std::map<std::string, Target>& tensors() const { return targets_; }
  std::vector<std::byte> value(const std::string& name) const;
  // For `partial`: tensors with the reason, weights of the model that no tensor becomes, and those
  // that one of another type would become, with both types.
  const std::vector<std::string>& left_out() const { return left_out_; }
  const std::vector<std::string>& missing() const { return missing_; }
  const std::vector<std::string>& unlike() const { return unlike_; }

 private:
  // One use of a rule: all sources that it needs, and what it makes of them.
  struct Use {
    const NameRule* rule = nullptr;
    NamePattern::Numbers numbers;
    std::vector<std::string> sources, targets;  // sources are "" until they are found
    std::vector<TensorType> types;              // of the targets
  };
  using Key = std::pair<int, NamePattern::Numbers>;

  bool to_ours() const { return options_.way == RenamingWay::kToOurs; }
  AxisPattern axes_of(const NameRule& rule) const;
  void find_lengths();
  void take(const std::string& name, std::map<Key, std::size_t>& known);
  bool take_by(const NameRule& rule, const std::string& name, std::map<Key, std::size_t>& known,
               std::string& why_not);
  Use new_use(const NameRule& rule, const NamePattern::Numbers& numbers) const;
  bool is_whole(const Use& use);
  void find_types(Use& use) const;
  std::vector<std::int64_t> part_lengths(const Use& use, std::int64_t whole) const;
  bool lengths_are_known(const NameRule& rule) const;
  std::vector<TensorType> joined_type(const Use& use, const AxisPattern& axes) const;
  std::vector<TensorType> split_types(const Use& use, const AxisPattern& axes) const;
  DType target_type(const Use& use, const std::string& target) const;
  void require_known(const std::string& length) const;
  void add_targets(std::size_t use);
  bool gives_the_same(const std::string& name, const Target& other) const;
  void check_model();
  void refuse(const std::string& why);
  std::string where(const Use& use) const;

  std::vector<std::byte> value_of(const Target& target) const;
  std::vector<std::byte> joined(const Use& use, DType type) const;
  std::vector<std::byte> split_off(const Use& use, std::size_t part, DType type) const;
  std::vector<std::byte> read(const std::string& source, DType type) const;

  TensorSource source_;
  const NameRules& rules_;
  RenamingOptions options_;
  AxisLengths lengths_;
  std::vector<Use> uses_;
  std::map<std::string, Target> targets_;
  std::vector<std::string> left_out_, missing_, unlike_;
};

}  // namespace belfry
