#include "belfry/tests/support/process_threads.h"

#include <exception>
#include <string>
#include <thread>
#include <vector>

namespace belfry::test {

TcpGroupOptions local_processes(int size) {
  return {.size = size, .port = free_port(), .token = "test", .timeout = std::chrono::seconds(30)};
}

namespace {

using Body = std::function<void(std::shared_ptr<Processes>)>;

void run_on(int size, int per_host, const Body& body, const WatchOptions& watch) {
  TcpGroupOptions options = local_processes(size);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      options.rank = rank;
      options.host = "host" + std::to_string(rank / per_host);
      threads.emplace_back([&, options, rank] {
        try {
          body(std::make_shared<Processes>([options] { return connect_tcp(options); }, watch));
        } catch (...) {
          errors[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace

void run_processes(int size, const Body& body, const WatchOptions& watch) {
  run_on(size, size, body, watch);
}

void run_on_hosts(int size, int per_host, const Body& body) { run_on(size, per_host, body, {}); }

}  // namespace belfry::test
