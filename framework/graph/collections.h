// Keys of collections: ordered lists of nodes on a graph that builders fill and trainers read. They
// are TensorFlow's (GraphKeys), without those of queues, tables, resources and control flow. Belfry
// itself fills kGlobalVariables, kLocalVariables and kTrainableVariables (variables), kUpdateOps
// (moving averages) and kTrainOp (optimizers); the others are for models.
#pragma once
#include <string_view>

namespace belfry {

inline constexpr std::string_view kGlobalVariables = "variables";
inline constexpr std::string_view kLocalVariables = "local_variables";
inline constexpr std::string_view kModelVariables = "model_variables";
inline constexpr std::string_view kTrainableVariables = "trainable_variables";
inline constexpr std::string_view kMovingAverageVariables = "moving_average_variables";
inline constexpr std::string_view kMetricVariables = "metric_variables";
inline constexpr std::string_view kUpdateOps = "update_ops";
inline constexpr std::string_view kLosses = "losses";
inline constexpr std::string_view kRegularizationLosses = "regularization_losses";
inline constexpr std::string_view kWeights = "weights";
inline constexpr std::string_view kBiases = "biases";
inline constexpr std::string_view kActivations = "activations";
inline constexpr std::string_view kSummaries = "summaries";
inline constexpr std::string_view kSummaryOp = "summary_op";
inline constexpr std::string_view kGlobalStep = "global_step";
inline constexpr std::string_view kEvalStep = "eval_step";
inline constexpr std::string_view kTrainOp = "train_op";

}  // namespace belfry
