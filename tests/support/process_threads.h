// The processes of one run as threads of a test, which reach each other by TCP.
#pragma once
#include <functional>
#include <memory>

#include "belfry/framework/group/processes.h"
#include "belfry/framework/group/tcp_group.h"

namespace belfry::test {

// Options of rank 0 of `size` processes. Set the rank for the others.
TcpGroupOptions local_processes(int size);

// Calls body() in a thread for each of `size` processes, and waits for all. Rethrows the exception
// of the lowest rank.
void run_processes(int size, const std::function<void(std::shared_ptr<Processes>)>& body,
                   const WatchOptions& watch = {});
// As run_processes(), on several hosts as far as they can tell: so many successive ranks on each.
void run_on_hosts(int size, int per_host,
                  const std::function<void(std::shared_ptr<Processes>)>& body);

}  // namespace belfry::test
