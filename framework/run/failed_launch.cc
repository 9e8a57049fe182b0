#include "belfry/framework/run/failed_launch.h"

#include <new>
#include <string_view>
#include <typeinfo>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/error_origin.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/describe_with_forward.h"

namespace belfry {
namespace {

template <class E>
struct Failed final : E, FailedLaunch {
  Failed(const E& error, FailedLaunch launch) : E(error), FailedLaunch(std::move(launch)) {}
};

// Throws only if the class of `error` is exactly E: a derived class would lose its own members.
template <class E>
void throw_if(const Error& error, const FailedLaunch& launch) {
  if (typeid(error) == typeid(E)) throw Failed<E>(static_cast<const E&>(error), launch);
}

template <class... Es>
void throw_if_any(const Error& error, const FailedLaunch& launch) {
  (throw_if<Es>(error, launch), ...);
}

// Throws what rethrow_with_launch() throws, without recording the origin.
[[noreturn]] void rethrow_as_failed(const Node& node, const FailedLaunch& launch) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    const OutOfMemory error(cat(node.describe(),
                                ": there was no memory left for what it needs while it runs; use a "
                                "smaller batch, or allow this process more memory (ulimit -v)"));
    throw Failed<OutOfMemory>(error, launch);
  } catch (const Error& error) {
    throw_if_any<Error, InvalidArgument, NotFoundError, OutOfMemory, DeviceError, CommError,
                 IoError, InternalError>(error, launch);
    throw;
  }
}

// Whether the text of the exception being handled names the node and its line.
bool is_named(const Node& node) {
  try {
    throw;
  } catch (const std::exception& error) {
    return std::string_view(error.what()).find(node.describe().str()) != std::string_view::npos;
  } catch (...) {
    return false;
  }
}

}  // namespace

void rethrow_with_launch(const Node& node, const DeviceSpec& device) {
  FailedLaunch launch;
  launch.node = node.name();
  launch.device = device;
  try {
    rethrow_as_failed(node, launch);
  } catch (...) {
    rethrow_from({.what = describe_with_forward(node),
                  .op = launch.node,
                  .device = device.str(),
                  .is_told = is_named(node)});
  }
}

}  // namespace belfry
