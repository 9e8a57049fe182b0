// Connects processes by TCP, with nothing installed: for runs that no MPI starts.
#pragma once
#include <chrono>
#include <memory>
#include <string>

#include "belfry/framework/group/group.h"

namespace belfry {

struct TcpGroupOptions {
  int rank = 0;
  int size = 1;
  // Rank 0 listens here, and all others call it.
  std::string address = "127.0.0.1";
  int port = 0;
  // All processes of a run have the same token; others are turned away.
  std::string token = {};
  std::chrono::seconds timeout{60};  // for all processes to arrive
  std::string host = {};             // empty: the name of this machine
};

// A port of this machine that nobody listens at now, and that the system gives to no socket
// unasked. Throws CommError if it finds none.
int free_port();

// Every process connects to every other one. Returns when all are connected. Throws CommError, in
// each process, naming who is missing, has another token or size, or a rank that another one has.
std::unique_ptr<ProcessGroup> connect_tcp(const TcpGroupOptions& options);

}  // namespace belfry
