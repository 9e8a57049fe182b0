// Input: what a process of the run sends by TCP. Its check hashes are put right.
#include <array>
#include <chrono>
#include <memory>
#include <optional>

#include <sys/socket.h>

#include "belfry/framework/group/failure_detector.h"
#include "belfry/framework/group/tcp_messages_impl.h"
#include "belfry/tests/fuzz/target.h"
#include "belfry/tests/support/sealed_frames.h"

std::size_t belfry::test::largest_allowed(const std::uint8_t*, std::size_t size) {
  return mib_or_twice(size);
}

namespace {

using namespace belfry;

// The group of rank 0, and the socket of rank 1.
std::pair<std::unique_ptr<ProcessGroup>, detail::Socket> two_processes() {
  int files[2];
  test::check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, files) == 0, "no sockets");
  std::vector<detail::Met> met(2);
  for (detail::Met& one : met) one.host = "host";
  met[1].socket = detail::Socket(files[0]);
  return {detail::make_tcp_group(0, std::move(met),
                                 {.most_early = 64 << 20, .to_end = std::chrono::milliseconds(0)}),
          detail::Socket(files[1])};
}

// A message that the group may fill.
struct Awaited {
  std::vector<std::byte> bytes;
  GroupMessage message;
  Awaited(int tag, std::size_t size) : bytes(size), message{1, tag, bytes} {}
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::uint8_t> sealed(data, data + size);
  test::seal_frames(std::span(sealed));
  data = sealed.data();
  auto [group, stranger] = two_processes();
  std::array<Awaited, 4> awaited{Awaited(0, 1), Awaited(1, 300'000), Awaited(2, 5),
                                 Awaited(7, 1000)};
  const WatchOptions options{
      .beat = std::chrono::milliseconds(0), .most_silent = 0, .stall_warn = {}};
  FailureDetector watched(std::move(group), options, [](std::uint64_t key, std::uint64_t) {
    return key == 1 ? std::optional(std::vector<std::byte>(10)) : std::nullopt;
  });
  bool failed = false;
  test::may_refuse([&] {
    failed = true;
    for (Awaited& some : std::span(awaited).first(2)) watched.receive(some.message);
    for (std::size_t from = 0; from < size;) {
      const ssize_t sent =
          ::send(stranger.file(), data + from, size - from, MSG_DONTWAIT | MSG_NOSIGNAL);
      from += static_cast<std::size_t>(std::max<ssize_t>(0, sent));
      watched.poll();
    }
    // These have come early, if at all.
    for (Awaited& some : std::span(awaited).subspan(2)) watched.receive(some.message);
    for (int i = 0; i < 3; ++i) watched.poll();
    failed = false;
  });
  test::check(failed == static_cast<bool>(watched.failure()), "it forgets that it has failed");
  watched.end_others("that was all");
  return 0;
}
