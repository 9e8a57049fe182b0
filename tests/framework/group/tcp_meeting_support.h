// Processes that find each other, for tests. They are threads, so the sockets of this process are
// those of all of them.
#pragma once
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/group/agreement.h"
#include "belfry/framework/group/tcp_meeting_impl.h"
#include "belfry/framework/group/tcp_reception_impl.h"
#include "belfry/tests/support/process_threads.h"

namespace belfry {
namespace tcp_meeting_support {

using namespace detail;
using Clock = std::chrono::steady_clock;

inline Deadline soon() { return Clock::now() + std::chrono::seconds(20); }

inline HostAddress address(const std::string& text, int port = 0) {
  return read_address(text, port).front();
}

inline HostAddress rank_0_of(const TcpGroupOptions& options) {
  return address("127.0.0.1", options.port);
}

// The addresses at which this process listens.
inline std::vector<HostAddress> listening() {
  constexpr int kMostFiles = 4096;
  std::vector<HostAddress> found;
  for (int file = 0; file < kMostFiles; ++file) {
    int listens = 0;
    socklen_t size = sizeof(listens);
    if (::getsockopt(file, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0)
      continue;
    sockaddr_storage here{};
    size = sizeof(here);
    if (::getsockname(file, reinterpret_cast<sockaddr*>(&here), &size) == 0)
      found.emplace_back(here);
  }
  return found;
}

// Waits until so many addresses have a listener.
inline std::vector<HostAddress> listening(std::size_t count) {
  for (const Deadline end = soon(); Clock::now() < end;) {
    std::vector<HostAddress> found = listening();
    if (found.size() >= count) return found;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "not so many listen: " << count;
  return listening();
}

inline TcpGroupOptions of_rank(TcpGroupOptions options, int rank) {
  options.rank = rank;
  return options;
}

// What connect_tcp() throws, or "" once it has met all.
inline std::string outcome(const TcpGroupOptions& options) {
  try {
    const auto group = connect_tcp(options);
    return cat(gather(*group, "x").size()) == cat(options.size) ? "" : "another number";
  } catch (const CommError& error) {
    return error.what();
  }
}

inline std::future<std::string> started(const TcpGroupOptions& options) {
  return std::async(std::launch::async, [options] { return outcome(options); });
}

inline std::string read_letter(const Socket& socket, std::size_t most) {
  LetterReader reader(most);
  while (!reader.whole()) {
    if (!await(socket.file(), POLLIN, soon())) throw CommError("nothing came");
    reader.add(socket.read_some(reader.space()));
  }
  return std::string(reader.body());
}

// The end of a card of a process that wants to meet others at rank 0.
inline const std::string kToRankZero = cat(" 0 ", kNoMeeting);

// Calls a listener with a card of the test's choice, as a process that has the token.
struct FakeCaller {
  FakeCaller(const HostAddress& where, const std::string& token, const std::string& card,
             const std::string& whom = kToRankZero)
      : socket(Socket::connect_to(where, soon())),
        banner(Banner::read(read_letter(socket, kMostBanner))),
        seal(MeetingKey(token, 0), banner.nonce, nonce) {
    socket.write_all(letter(Call{nonce, 0, seal.close("card", card + whom)}.body()), soon());
  }
  // What the listener says.
  Answer heard() {
    return Answer::read(seal.open("answer", read_letter(socket, kMostAnswer)).value());
  }
  std::string answer() { return heard().text; }

  const std::string nonce = random_nonce();
  Socket socket;
  Banner banner;
  Seal seal;
};

// What becomes of rank 2 of three, which needs rank 1: its error, of which it tells rank 0.
inline std::string outcome_of_need(const TcpGroupOptions& options) {
  const auto group = connect_tcp(of_rank(options, 2));
  std::byte byte{};
  GroupMessage message{1, 3, {&byte, 1}};
  group->receive(message);
  try {
    finish(*group, {&message, 1});
  } catch (const CommError& error) {
    group->end_others(error.what());
    return error.what();
  }
  return "";
}

}  // namespace tcp_meeting_support
}  // namespace belfry
