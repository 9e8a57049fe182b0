// The public face of Belfry: all that a program such as that of README.md needs. One that looks
// deeper, as some of examples/ do, includes the header that it wants beside this one. Installed are
// these, those for ops and strategies of one's own, and what they include; and what examples
// include (scripts/cmake/package.cmake).
#pragma once
// IWYU pragma: begin_exports

// Graphs: nodes, scopes, ops, gradients.
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/repeat.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops.h"

// Ops of one's own: kernels, how shards divide outputs, and random numbers by sample.
#include "belfry/framework/graph/op.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/kernels/counter.h"

// Running them.
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/framework/run/session.h"
#include "belfry/framework/trace/trace.h"

// Towers: one model on several devices, and where its variables live.
#include "belfry/towers/attention_layers.h"
#include "belfry/towers/layers.h"
#include "belfry/towers/least_loaded_device_setter.h"
#include "belfry/towers/metrics.h"
#include "belfry/towers/recurrent_layers.h"
#include "belfry/towers/replicate.h"
#include "belfry/towers/variable_getters.h"
#include "belfry/towers/weighted_mean.h"

// Strategies: how the gradients of towers are combined.
#include "belfry/allreduce/gradient_packer.h"
#include "belfry/allreduce/strategy.h"

// Training: trainers with their optimizers and callbacks, data, and main functions.
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"
#include "belfry/trainers/data/array_data.h"
#include "belfry/trainers/data/augment.h"
#include "belfry/trainers/data/cifar10.h"
#include "belfry/trainers/data/decode_image.h"
#include "belfry/trainers/data/images.h"
#include "belfry/trainers/data/length_buckets.h"
#include "belfry/trainers/data/map_samples.h"
#include "belfry/trainers/data/mnist.h"
#include "belfry/trainers/data/sample_stream.h"
#include "belfry/trainers/data/synthetic_data.h"
#include "belfry/trainers/data/text_data.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/flags/weight_flags.h"
#include "belfry/trainers/optimizers/minimize.h"
#include "belfry/trainers/program/program.h"
#include "belfry/trainers/program/text_samples.h"
#include "belfry/trainers/program/train.h"
#include "belfry/trainers/runs/predictor.h"
#include "belfry/trainers/runs/predictor_json.h"
#include "belfry/trainers/util/output_file.h"
#include "belfry/trainers/util/schedules.h"

// IWYU pragma: end_exports
