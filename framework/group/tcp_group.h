// Processes that reach each other by TCP, with nothing installed: where no MPI starts them.
#pragma once
#include <chrono>
#include <memory>
#include <string>

#include "belfry/framework/group/group.h"

namespace belfry {

struct TcpGroupOptions {
  int rank = 0;
  int size = 1;
  // Where rank 0 listens, and all others call.
  std::string address = "127.0.0.1";
  int port = 0;
  // All processes of a run have the same; others are turned away.
  std::string token = {};
  std::chrono::seconds timeout{60};  // for all processes to arrive
  std::string host = {};             // empty: the name of this machine
};

// A port of this machine that nobody listens at now, and that no socket gets unasked. Throws
// CommError if it finds none.
int free_port();

// Every process connects to every other one. Returns when all are connected. Throws CommError, in
// each process, naming who is missing, has another token or size, or a rank that another one has.
std::unique_ptr<ProcessGroup> connect_tcp(const TcpGroupOptions& options);

}  // namespace belfry
