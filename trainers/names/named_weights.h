// Weights of another program, in safetensors files, for a model of ours.
#pragma once
#include <map>
#include <string>

#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/checkpoint/tensor_files.h"
#include "belfry/trainers/names/renamed_tensors.h"

namespace belfry {

// The tensors of files, to be renamed. `files` must outlive it.
TensorSource source_in(const TensorFiles& files);

// Sets the weights of the session's graph, as load_weights() does. Checks names and shapes before
// it sets any. `partial`: RenamingOptions. Throws as RenamedTensors and TensorFiles do, and
// InvalidArgument if no tensor becomes a weight.
LoadedWeights load_named_weights(Session& session, const std::string& path, const NameRules& rules,
                                 bool partial, FileSystem& files = local_file_system());

// Records in the additions to a checkpoint what a program that loads it must be told
// (NameRules::needs).
void note_needs(const std::map<std::string, std::string>& needs, JsonValue& extra);
// What note_needs() recorded; nothing in other checkpoints.
std::map<std::string, std::string> needs_in(const JsonValue& extra);
// Whether an option has the value that is needed. 1e-6 and 0.000001 are the same, as are 1 and
// true.
bool is_needed_value(const JsonValue& now, const std::string& wanted);

}  // namespace belfry
