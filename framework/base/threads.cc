#include "belfry/framework/base/threads.h"

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

ThreadHook& thread_hook() {
  static ThreadHook instance;
  return instance;
}

}  // namespace

void set_thread_hook(ThreadHook wanted) { thread_hook() = std::move(wanted); }

detail::SignalsBlocked::SignalsBlocked() {
  sigset_t asynchronous;
  sigfillset(&asynchronous);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
    sigdelset(&asynchronous, fault);
  ::pthread_sigmask(SIG_BLOCK, &asynchronous, &before_);
}

detail::SignalsBlocked::~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void detail::call_thread_hook(const ThreadUse& use) {
  if (thread_hook()) thread_hook()(use);
}

void detail::refuse_thread(const ThreadUse& use, const std::system_error& error) {
  throw DeviceError(cat("cannot start a thread for ", use.what, ": ", error.code().message(), "; ",
                        use.remedy,
                        ", or allow this user more threads (ulimit -u) and this process more "
                        "memory (ulimit -v)"));
}

}  // namespace belfry
