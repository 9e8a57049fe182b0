// Connects processes by TCP, with nothing to install: for runs that MPI does not start.
#pragma once
#include <chrono>
#include <memory>
#include <string>

#include "belfry/framework/group/group.h"

namespace belfry {

struct TcpGroupOptions {
  int rank = 0;
  int size = 1;
  // Rank 0 listens here, and all others connect to it.
  std::string address = "127.0.0.1";
  int port = 0;
  // It takes the first of so many ports, from `port` on, that is free.
  int ports = 1;
  // All processes of a run share this secret, and prove to each other that they know it; it is
  // never sent. Others are turned away.
  std::string token = {};
  // Names the run among those that have this token.
  std::string run = {};
  // Counts the starts of the run with this token. A process left over from another start is turned
  // away.
  int round = 0;
  bool insecure = false;  // they may meet without a token where outsiders can connect
  std::chrono::milliseconds timeout{300'000};  // for all processes to arrive
  // How long one attempt waits for a host, and then for each answer of whoever listens there.
  std::chrono::milliseconds one_try{10'000};
  std::string host = {};  // empty: the name of this machine
};

// How to give processes a token, for errors.
inline constexpr char kTokenAdvice[] =
    "set BELFRY_TOKEN to a secret, the same in all of them (export BELFRY_TOKEN=$(openssl rand "
    "-hex 16) in the script that starts them), or keep one in ~/.belfry/token with mode 0600, in a "
    "home that all machines see";

// Whether the processes need a token, and have none: `address` is not of this machine alone.
bool lacks_token(const TcpGroupOptions& options);

// A port of this machine that nobody listens on now, and that the system assigns to no socket on
// its own. Throws CommError if it finds none.
int free_port();

// Returns when all processes have met: each is connected to rank 0. Two others connect when they
// first need each other, so all but rank 0 go on listening. Any other caller is turned away, and
// delays nobody. Throws CommError, in each process, naming who is missing, has another token or
// size, or a rank that another one has.
std::unique_ptr<ProcessGroup> connect_tcp(const TcpGroupOptions& options);

}  // namespace belfry
