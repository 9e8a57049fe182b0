#include "belfry/trainers/runs/run_error.h"

#include <functional>
#include <new>
#include <optional>

#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/group/watched_group.h"
#include "belfry/framework/run/failed_launch.h"
#include "belfry/trainers/core/divergence.h"
#include "belfry/trainers/util/flag_values.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

// Calls f() with the innermost of nested exceptions.
void with_first(const std::exception& error, const std::function<void(const std::exception&)>& f) {
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& inner) {
    return with_first(inner, f);
  }
  f(error);
}

struct Kind {
  std::string code;
  std::string advice;
};

template <class E>
bool is(const std::exception& error) {
  return dynamic_cast<const E*>(&error) != nullptr;
}

Kind kind_of(const std::exception& error, const std::optional<ErrorOrigin>& origin) {
  if (is<FlagError>(error) || is<OptionError>(error))
    return {"FLAG", "correct the option that is named, and start the command again"};
  if (is<OutOfMemory>(error) || is<std::bad_alloc>(error))
    return {"OUT_OF_MEMORY", "use a smaller batch, fewer shards or fewer devices"};
  if (is<IoError>(error))
    return {"IO",
            "see that the file that is named can be read or written, and start the same "
            "command again"};
  if (is<StallError>(error))
    return {"STALLED",
            "see why the op, the data set or the callback that is named does not come back, and "
            "start the same command again"};
  if (is<CommError>(error))
    return {"COLLECTIVE",
            "look for the device that failed first, and start the same command again"};
  if (is<DeviceError>(error))
    return {"DEVICE", "see that the device works, and start the same command again"};
  if (is<FailedLaunch>(error) || (origin && !origin->op.empty()))
    return {"OP", "correct the data or the model, and start the same command again"};
  return {"FAILED", "mend the cause, and start the same command again"};
}

JsonValue text_or_null(const std::string& text) {
  return text.empty() ? JsonValue() : JsonValue(text);
}

// What the error says, or what variables hold. They can be read unless a run has left them half
// written, or has not ended. Other processes may have ended, which have parts of them.
Divergence divergence_of(const std::exception& error, Trainer& trainer) {
  std::optional<Divergence> found;
  bool has_stalled = false;
  with_first(error, [&](const std::exception& first) {
    has_stalled = is<StallError>(first);
    if (const auto* const diverged = dynamic_cast<const Diverged*>(&first))
      found = diverged->found();
  });
  const bool can_read =
      !has_stalled && trainer.session().intact() && trainer.graph().process().size == 1;
  if (!found) found = can_read ? find_divergence(trainer) : Divergence{};
  return *found;
}

}  // namespace

JsonValue error_json(const std::exception& error, Trainer& trainer, const std::string& kept) {
  const Divergence divergence = divergence_of(error, trainer);
  Kind kind{"DIVERGED", divergence.advice};
  std::string cause = "values that are not finite";
  std::int64_t step = divergence.loss_since.value_or(trainer.steps());
  JsonValue op, device;
  std::string where;
  with_first(error, [&](const std::exception& first) {
    const std::optional<ErrorOrigin> origin = origin_of(first);
    if (!divergence) kind = kind_of(first, origin);
    if (!divergence) cause = &first == &error ? "" : first.what();
    const auto* const launch = dynamic_cast<const FailedLaunch*>(&first);
    if (launch) {
      op = launch->node;
      device = launch->device.str();
      step = trainer.steps() + 1;
    }
    if (!origin) return;
    where = origin->what;
    if (op.kind() == JsonValue::Kind::kNull) op = text_or_null(origin->op);
    if (device.kind() == JsonValue::Kind::kNull) device = text_or_null(origin->device);
    if (origin->step > 0) step = origin->step;
  });
  return JsonValue::object()
      .set("code", kind.code)
      .set("what", options_as_flags(error.what()))
      .set("device", std::move(device))
      .set("step", step)
      .set("op", std::move(op))
      .set("where", text_or_null(where))
      .set("variable", text_or_null(divergence.variable))
      .set("cause", text_or_null(options_as_flags(cause)))
      .set("kept", text_or_null(kept))
      .set("do", options_as_flags(kind.advice));
}

}  // namespace belfry
