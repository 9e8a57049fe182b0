// Processes of one run as threads of a test, which reach each other by TCP.
#pragma once
#include <functional>
#include <memory>

#include "belfry/framework/group/processes.h"
#include "belfry/framework/group/tcp_group.h"

namespace belfry::test {

// Of rank 0 of `size` processes, to be given the others' ranks.
TcpGroupOptions local_processes(int size);

// Calls body() in a thread for each of `size` processes, and waits for all. Rethrows what the one
// of the lowest rank threw.
void run_processes(int size, const std::function<void(std::shared_ptr<Processes>)>& body,
                   const WatchOptions& watch = {});
// The same on several hosts, by what they say: so many successive ranks on each.
void run_on_hosts(int size, int per_host,
                  const std::function<void(std::shared_ptr<Processes>)>& body);

}  // namespace belfry::test
