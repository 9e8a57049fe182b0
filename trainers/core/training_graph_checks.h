// What the builder of a training graph refuses of options, and asks of the towers that it has
// built.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "belfry/towers/replicate.h"
#include "belfry/trainers/data/dataset.h"

namespace belfry {

// Fields become placeholders that are found by name. Throws InvalidArgument for names that are
// empty or equal, or have one of ":/ ".
void require_field_names(std::span<const Dataset::Field> fields);

// Each scope of GradientOptions::recompute holds nodes of the model: OptionMistake for one that
// does not, with the nearest name.
void require_recompute_scopes(const TowerRecord& tower, const std::vector<std::string>& scopes);

// Warns, once in a process, of each of these scopes in which the backward pass builds nothing
// again. A node that is in several counts for the first of them.
void warn_of_useless_scopes(const Graph& graph, const std::vector<std::string>& scopes);

// Whether a tower uses one of its variables more than once.
bool uses_a_variable_twice(const Graph& graph, std::span<const Variable> variables);

}  // namespace belfry
