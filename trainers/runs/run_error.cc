#include "belfry/trainers/runs/run_error.h"

#include <functional>
#include <optional>
#include <utility>

#include "belfry/framework/base/error_json.h"
#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/group/processes.h"
#include "belfry/trainers/core/divergence.h"

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

// What to do about a failure of a kind that says nothing of it itself.
std::string advice_for(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kFlag: return "correct the option that is named, and start the command again";
    case ErrorKind::kOutOfMemory: return "use a smaller batch, fewer shards or fewer devices";
    case ErrorKind::kIo:
      return "see that the file that is named can be read or written, and start the same command "
             "again";
    case ErrorKind::kStalled:
      return "see why the op, the data set or the callback that is named does not come back, and "
             "start the same command again";
    case ErrorKind::kCollective:
      return "look for the device that failed first, and start the same command again";
    case ErrorKind::kDevice: return "see that the device works, and start the same command again";
    case ErrorKind::kCorrupted:
      return "start the same command again, which resumes from the newest checkpoint; if this "
             "happens again, leave out the machine that is named";
    case ErrorKind::kOp: return "correct the data or the model, and start the same command again";
    default: return "fix the cause, and start the same command again";
  }
}

JsonValue text_or_null(const std::string& text) {
  return text.empty() ? JsonValue() : JsonValue(text);
}

// What the error says, or what variables hold. They can be read unless a run has left them half
// written, or has not ended. Other processes may have ended, which have parts of them.
Divergence divergence_of(const std::exception& error, const ErrorFields& known, Trainer& trainer) {
  std::optional<Divergence> found;
  with_first(error, [&](const std::exception& first) {
    if (const auto* const diverged = dynamic_cast<const Diverged*>(&first))
      found = diverged->found();
  });
  const bool can_read = known.kind != ErrorKind::kStalled && trainer.session().intact() &&
                        trainer.graph().process().size == 1;
  if (!found) found = can_read ? find_divergence(trainer.built(), trainer.record()) : Divergence{};
  return *found;
}

// The first error: of another process, or the one that others are nested around.
std::string cause_of(const std::exception& error, const ErrorFields& known) {
  if (known.rank >= 0) return known.why;
  std::string cause;
  with_first(error, [&](const std::exception& first) {
    if (&first != &error) cause = fields_of(first).why;
  });
  return cause;
}

std::int64_t step_of(const ErrorFields& known, const Divergence& divergence,
                     const Trainer& trainer) {
  if (known.step > 0) return known.step;
  if (!known.op.empty() && known.rank < 0) return trainer.steps() + 1;
  return divergence.loss_since.value_or(trainer.steps());
}

}  // namespace

JsonValue error_json(const std::exception& error, Trainer& trainer, const std::string& kept) {
  ErrorFields known = fields_of(error);
  const Divergence divergence = divergence_of(error, known, trainer);
  const std::string what = error_text(known);
  const std::string cause = divergence ? "values that are not finite" : cause_of(error, known);
  const std::int64_t step = step_of(known, divergence, trainer);
  if (const Processes* const processes = trainer.built().processes())
    known = of_process(std::move(known), processes->rank(), processes->host(processes->rank()));
  if (divergence) known.kind = ErrorKind::kDiverged;
  const std::string advice = divergence ? divergence.advice : known.advice;
  return JsonValue::object()
      .set("code", name_of(known.kind))
      .set("what", what)
      .set("rank", known.rank >= 0 ? JsonValue(known.rank) : JsonValue())
      .set("host", text_or_null(known.host))
      .set("device", text_or_null(known.device))
      .set("step", step)
      .set("op", text_or_null(known.op))
      .set("where", text_or_null(known.where))
      .set("variable",
           text_or_null(divergence.variable.empty() ? known.variable : divergence.variable))
      .set("option", text_or_null(known.option))
      .set("cause", text_or_null(cause))
      .set("kept", text_or_null(kept))
      .set("do", advice.empty() ? advice_for(known.kind) : advice);
}

}  // namespace belfry
