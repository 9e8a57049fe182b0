#include "belfry/framework/group/tcp_group.h"

#include <random>
#include <utility>

#include <unistd.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/group/tcp_meeting_impl.h"
#include "belfry/framework/group/tcp_messages_impl.h"

namespace belfry {
namespace {

using detail::Socket;

std::string own_host() {
  char name[256] = {};
  const bool named = ::gethostname(name, sizeof(name) - 1) == 0 && detail::is_host_name(name);
  return named ? name : "unknown";
}

}  // namespace

int free_port() {
  // These are below the ports that the system assigns to sockets without a port. Such a socket
  // could take the port before rank 0 listens.
  constexpr int kFirst = 10'000, kLast = 32'767, kTries = 100;
  std::random_device random;
  std::uniform_int_distribution<int> ports(kFirst, kLast);
  for (int i = 0; i < kTries; ++i) {
    const int port = ports(random);
    try {
      return Socket::listen_everywhere(port).here().port();
    } catch (const detail::OutOfFiles&) {
      throw;
    } catch (const CommError&) {  // somebody listens there
    }
  }
  throw CommError(cat("of ", kTries, " ports between ", kFirst, " and ", kLast, " none is free"));
}

bool lacks_token(const TcpGroupOptions& options) {
  return options.size > 1 && options.token.empty() && !options.insecure &&
         !detail::is_loopback(options.address);
}

std::unique_ptr<ProcessGroup> connect_tcp(const TcpGroupOptions& options) {
  require(options.size >= 1 && options.rank >= 0 && options.rank < options.size, "rank ",
          options.rank, " of ", options.size, " processes is not possible");
  require(!options.address.empty(), "the address at which the processes meet is empty");
  require(!lacks_token(options), "the processes meet at ", options.address,
          ", where others can reach them, and have no token; ", kTokenAdvice,
          "; or set BELFRY_INSECURE=1 if nobody else is in this network");
  const std::string host = options.host.empty() ? own_host() : options.host;
  require(detail::is_host_name(host), "'", shown(host), "' is no name of a host");
  auto [met, door] = detail::meet(options, host);
  return detail::make_tcp_group(options.rank, std::move(met), {.by_memory = true}, std::move(door));
}

}  // namespace belfry
