#include <algorithm>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/group/tcp_meeting_impl.h"

namespace belfry::detail {
namespace {

using Clock = std::chrono::steady_clock;

// "0.5", "300".
std::string in_seconds(Clock::duration time) {
  const auto whole = std::chrono::round<std::chrono::milliseconds>(time);
  constexpr std::chrono::seconds kExact{10};
  return whole < kExact ? cat(static_cast<double>(whole.count()) / 1e3)
                        : cat(std::chrono::round<std::chrono::seconds>(time).count());
}

}  // namespace

Patience::Patience(std::chrono::milliseconds most) : began_(Clock::now()), end_(began_ + most) {
  constexpr std::chrono::seconds kFirstWord{5};
  next_word_ = began_ + kFirstWord;
}

bool Patience::is_over() const { return Clock::now() >= end_; }

Deadline Patience::next_look() const {
  return std::min(end_, Clock::now() + std::chrono::seconds(1));
}

void Patience::extend(std::chrono::milliseconds least) {
  end_ = std::max(end_, Clock::now() + least);
}

void Patience::tell(const std::function<std::string()>& what, bool soon) {
  const auto now = Clock::now();
  if (now < next_word_ && (has_told_ || !soon)) return;
  has_told_ = true;
  next_word_ = now + std::chrono::minutes(1);
  const auto waited = std::chrono::round<std::chrono::seconds>(now - began_);
  log_warning(what(), " (", waited.count(), " s of ", seconds(), " s)");
}

std::string Patience::seconds() const { return in_seconds(end_ - began_); }

std::string some_of(const std::vector<int>& ranks) {
  constexpr std::size_t kMost = 16;
  if (ranks.size() <= kMost) return join(ranks);
  return cat(join(std::vector<int>(ranks.begin(), ranks.begin() + kMost)), " and ",
             ranks.size() - kMost, " more");
}

bool is_loopback(const std::string& address) {
  if (lower(address) == "localhost") return true;
  const std::vector<HostAddress> found = read_address(address, 0);
  return !found.empty() && std::ranges::all_of(found, &HostAddress::is_loopback);
}

std::vector<Socket> listen_at(const std::string& address, int port, std::string* unknown) {
  const bool loopback = is_loopback(address);
  std::vector<HostAddress> meant = read_address(address, port);
  if (meant.empty()) try {
      meant = look_up(address, port);
      const bool any = std::ranges::any_of(meant, &HostAddress::is_loopback);
      if (any && !loopback) meant.clear();  // on other machines the name means another address
    } catch (const CommError& error) {      // other machines may know it
      if (unknown) *unknown = error.what();
    }
  if (loopback) std::erase_if(meant, [](const HostAddress& a) { return !a.is_loopback(); });
  std::vector<Socket> listeners;
  for (auto one = meant.begin(); one != meant.end(); ++one) {
    if (std::find(meant.begin(), one, *one) != one) continue;
    if (Socket socket = Socket::listen_on(*one)) listeners.push_back(std::move(socket));
  }
  require<CommError>(!listeners.empty() || !loopback, "cannot listen at ", endpoint(address, port),
                     ": this machine has no such address");
  if (listeners.empty()) listeners.push_back(Socket::listen_everywhere(port));
  return listeners;
}

HostAddress way_to(const Place& place, const HostAddress& own, const HostAddress& first) {
  const std::vector<HostAddress> seen = read_address(place.address, place.port);
  require<CommError>(!seen.empty(), "rank 0 gives an address that is none: ", shown(place.address));
  // That process came to rank 0 from rank 0's own machine, which other machines reach at `first`.
  if (seen.front().is_loopback() && !own.is_loopback()) return first.with_port(place.port);
  return seen.front();
}

Meeting meet(const TcpGroupOptions& options, const std::string& host) {
  if (options.size == 1) {
    Meeting alone;
    alone.met.push_back({host});
    return alone;
  }
  allow_connections(static_cast<std::size_t>(options.size) - 1);
  return options.rank == 0 ? lead(options, host) : follow(options, host);
}

}  // namespace belfry::detail
