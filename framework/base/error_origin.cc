#include "belfry/framework/base/error_origin.h"

#include <array>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include <cxxabi.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// The exceptions recorded last. Each is kept, so that no other one can have its address.
class NotedOrigins {
 public:
  void note(const std::exception& error, ErrorOrigin origin) {
    const std::lock_guard lock(mutex_);
    if (Noted* const before = find(error)) {
      if (!origin.what.empty()) before->origin.what += cat(", in ", origin.what);
      if (before->origin.device.empty()) before->origin.device = std::move(origin.device);
      if (before->origin.step == 0) before->origin.step = origin.step;
      return;
    }
    Noted noted{std::current_exception(), &error, std::move(origin)};
    std::swap(noted, notes_[next_++ % notes_.size()]);
  }

  void add_step(const std::exception& error, std::int64_t step) {
    const std::lock_guard lock(mutex_);
    Noted* const before = find(error);
    if (!before || before->origin.step != 0) return;
    before->origin.what += cat(", in step ", step);
    before->origin.step = step;
  }

  std::optional<ErrorOrigin> of(const std::exception& error) {
    const std::lock_guard lock(mutex_);
    const Noted* const noted = find(error);
    return noted ? std::optional(noted->origin) : std::nullopt;
  }

 private:
  struct Noted {
    std::exception_ptr kept;
    const std::exception* error = nullptr;
    ErrorOrigin origin;
  };

  Noted* find(const std::exception& error) {
    for (Noted& noted : notes_)
      if (noted.error == &error) return &noted;
    return nullptr;
  }

  std::mutex mutex_;
  std::array<Noted, 16> notes_;
  std::size_t next_ = 0;
};

NotedOrigins& noted_origins() {
  static auto* const noted = new NotedOrigins;  // threads may end after static objects
  return *noted;
}

std::string demangled(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), &std::free);
  return name ? name.get() : type.name();
}

// In the handler of something that is not a std::exception.
std::string text_of_thrown() {
  constexpr char kNoException[] = ", which is no std::exception";
  try {
    throw;
  } catch (int number) {
    return cat("it threw the int ", number, kNoException);
  } catch (const char* text) {
    return cat("it threw the text '", text ? text : "", "'", kNoException);
  } catch (const std::string& text) {
    return cat("it threw the std::string '", text, "'", kNoException);
  } catch (...) {
    const std::type_info* const type = abi::__cxa_current_exception_type();
    return cat("it threw ", type ? demangled(*type) : "something", kNoException);
  }
}

// The exception's own fields.
ErrorFields own_fields(const std::exception& error) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  ErrorFields fields = known ? known->fields() : ErrorFields{.why = error.what()};
  if (dynamic_cast<const std::bad_alloc*>(&error))
    fields = {.kind = ErrorKind::kOutOfMemory, .why = "there was no memory left"};
  if (fields.why.empty())
    fields.why = cat("it threw ", demangled(typeid(error)), ", which says nothing more");
  return fields;
}

void take_if_unknown(std::string& text, const std::string& other) {
  if (text.empty()) text = other;
}

void add_origin(ErrorFields& fields, const ErrorOrigin& origin) {
  if (fields.where.empty()) {
    fields.where = origin.what;
    fields.names_where = origin.is_told;
  }
  take_if_unknown(fields.op, origin.op);
  take_if_unknown(fields.device, origin.device);
  if (fields.step == 0) fields.step = origin.step;
  if (fields.kind == ErrorKind::kFailed && !fields.op.empty()) fields.kind = ErrorKind::kOp;
}

// The failed process knows where it failed; the place recorded here is where this process learned
// of it. But in the middle of a step the failed process did not know yet which callback had run the
// step. This process had the same one.
void add_place(ErrorFields& fields, const ErrorOrigin& origin) {
  if (fields.where.empty() || fields.step > 0) return;
  fields.where += cat(", in ", origin.what);
  fields.step = origin.step;
}

// If an exception is nested in another, the outer text already names what the inner one names.
void add_cause(ErrorFields& fields, const ErrorFields& inner) {
  if (fields.kind == ErrorKind::kFailed) fields.kind = inner.kind;
  if (fields.where.empty()) {
    fields.where = inner.where;
    fields.names_where = true;
  }
  if (fields.step == 0) fields.step = inner.step;
  for (std::string ErrorFields::*const text :
       {&ErrorFields::device, &ErrorFields::op, &ErrorFields::variable, &ErrorFields::option})
    take_if_unknown(fields.*text, inner.*text);
}

}  // namespace

void rethrow_from(ErrorOrigin origin) {
  try {
    throw;
  } catch (const std::exception& error) {
    noted_origins().note(error, std::move(origin));
    throw;
  } catch (...) {
    try {
      throw Error(text_of_thrown());
    } catch (const Error& error) {
      origin.is_told = false;
      noted_origins().note(error, std::move(origin));
      throw;
    }
  }
}

void add_step_to_origin(const std::exception& error, std::int64_t step) {
  noted_origins().add_step(error, step);
}

std::optional<ErrorOrigin> origin_of(const std::exception& error) {
  return noted_origins().of(error);
}

ErrorFields fields_of(const std::exception& error) {
  ErrorFields fields = own_fields(error);
  if (const std::optional<ErrorOrigin> origin = origin_of(error); origin && fields.rank < 0)
    add_origin(fields, *origin);
  else if (origin)
    add_place(fields, *origin);
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& inner) {
    add_cause(fields, fields_of(inner));
  } catch (...) {  // it has nothing to say
  }
  return fields;
}

std::string class_name(const std::type_info& type) {
  std::string name = demangled(type);
  for (const std::string_view part : {"(anonymous namespace)::", "belfry::"})
    for (std::size_t at; (at = name.find(part)) != std::string::npos;) name.erase(at, part.size());
  return name;
}

bool is_of_belfry(const std::type_info& type) { return demangled(type).starts_with("belfry::"); }

}  // namespace belfry
