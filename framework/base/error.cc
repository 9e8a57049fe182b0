#include "belfry/framework/base/error.h"

#include <utility>

#include "belfry/framework/base/text.h"

namespace belfry {

std::string error_text(const ErrorFields& fields) {
  std::string text;
  if (fields.reporter >= 0) text = cat("[rank ", fields.reporter, ", ", fields.reporter_host, "] ");
  if (fields.rank >= 0 && fields.rank != fields.reporter)
    text += cat("rank ", fields.rank, ", ", fields.host, ": ");
  if (!fields.where.empty() && !fields.names_where) text += cat(fields.where, ": ");
  text += fields.why;
  for (const std::string* const more : {&fields.advice, &fields.kept})
    if (!more->empty()) text += cat("; ", *more);
  return text;
}

ErrorFields of_process(ErrorFields fields, int rank, const std::string& host) {
  if (fields.rank >= 0) return fields;
  fields.rank = rank;
  fields.host = host;
  return fields;
}

Error::Error(ErrorFields fields)
    : std::runtime_error(error_text(fields)),
      fields_(std::make_shared<const ErrorFields>(std::move(fields))) {}

ErrorFields Error::fields() const {
  ErrorFields fields = fields_ ? *fields_ : ErrorFields{.why = what()};
  const ErrorFields known = of_class();
  if (fields.kind == ErrorKind::kFailed) fields.kind = known.kind;
  fields.is_mistake = fields.is_mistake || known.is_mistake;
  return fields;
}

}  // namespace belfry
