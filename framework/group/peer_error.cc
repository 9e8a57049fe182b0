#include "belfry/framework/group/peer_error.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/base/error_json.h"

namespace belfry {
namespace {

// An error that another process reported. Its kind is the reported one, not that of the class.
class ToldError final : public CommError {
 public:
  using CommError::CommError;

 protected:
  ErrorFields of_class() const override { return {}; }
};

// Removes half of the longest text that no program reads.
void shorten(ErrorFields& error) {
  std::string* const texts[] = {&error.why,      &error.advice, &error.where,
                                &error.variable, &error.kept,   &error.op,
                                &error.device,   &error.option, &error.host};
  std::string& longest =
      **std::ranges::max_element(texts, {}, [](const std::string* text) { return text->size(); });
  longest.resize(longest.size() / 2);
}

ErrorFields error_in(std::string_view reason) {
  try {
    return error_from(JsonValue::parse(reason));
  } catch (const InvalidArgument&) {
    // Makes a text printable, as a member of JSON is. Text of JSON is UTF-8, whatever came.
    const JsonValue fields = JsonValue::object().set("code", "COLLECTIVE").set("why", reason);
    return error_from(JsonValue::parse(fields.str()));
  }
}

}  // namespace

void blame_peer(int rank, const std::string& host, std::string why) {
  throw CommError(ErrorFields{.rank = rank, .host = host, .why = std::move(why)});
}

void blame_peer(const ProcessGroup& group, int rank, std::string why) {
  blame_peer(rank, group.host(rank), std::move(why));
}

std::exception_ptr error_of_group(ErrorFields error) {
  if (error.kind == ErrorKind::kStalled)
    return std::make_exception_ptr(StallError(std::move(error)));
  if (error.is_mistake) return std::make_exception_ptr(MistakeError(std::move(error)));
  return std::make_exception_ptr(ToldError(std::move(error)));
}

std::string reason_of(ErrorFields error) {
  for (;; shorten(error))
    if (std::string reason = to_json(error).str(); reason.size() <= kLongestReason) return reason;
}

void throw_reason(int sender, const std::string& host, std::string_view reason) {
  ErrorFields error = error_in(reason);
  if (error.rank < 0 || error.rank == sender) {
    error.rank = sender;
    error.host = host;
  }
  error.reporter = -1;
  if (error.why.empty()) error.why = "it gives no reason";
  std::rethrow_exception(error_of_group(std::move(error)));
}

}  // namespace belfry
