#include "belfry/tests/cuda/fake_nccl.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "belfry/framework/base/require.h"
#include "belfry/tests/support/rank_sum.h"

namespace belfry::cuda {
namespace {

struct Sum {
  const void* from;
  void* to;
  std::size_t elements;
  ncclDataType_t type;
};

struct Message {
  int peer;
  const void* from;  // null: received
  void* to;
  std::size_t bytes;
};

struct Comm {
  int rank, ranks;
  int clique;
  bool blocks = false;
  // A communicator that is being split from this one, and where its caller wants it.
  Comm* split = nullptr;
  ncclComm_t* into = nullptr;
  int questions = 0;  // for which work is in progress; -1: for ever
  ncclResult_t state = ncclSuccess;
  bool finalized = false;
  std::vector<Sum> sums = {};
  std::vector<Sum> gathers = {};
  std::vector<Message> messages = {};  // still without counterpart
};

struct State {
  std::mutex mutex;
  std::map<const Comm*, std::unique_ptr<Comm>> comms;
  std::map<std::string, int> called;
  std::string fails, stalls, misuse;
  ncclResult_t code = ncclSuccess;
  int but = 0, delay = 0, cliques = 0, finalized = 0, aborted = 0;
  std::map<int, std::size_t> summed;    // sums that were made, by clique
  std::map<int, std::size_t> gathered;  // gathers likewise
};
State* state = nullptr;

thread_local bool captures = false;
thread_local int depth = 0;
thread_local std::vector<Comm*> grouped;

// Calls enter one after another. Two threads' calls of one communicator at once are found by the
// state that they leave.
ncclResult_t enter(const char* call) {
  ++state->called[call];
  if (state->fails != call || state->but-- > 0) return ncclSuccess;
  state->fails.clear();
  return state->code;
}

ncclResult_t misused(std::string why) {
  if (state->misuse.empty()) state->misuse = std::move(why);
  return ncclInvalidUsage;
}

// The calls of a communicator that blocks are done when they return.
void begin(Comm& comm, const char* call) {
  if (comm.blocks) return;
  if (comm.questions >= 0) comm.questions = state->delay;
  if (state->stalls != call) return;
  comm.questions = -1;
  state->stalls.clear();
}

Comm* find(ncclComm_t comm) {
  const auto found = state->comms.find(reinterpret_cast<const Comm*>(comm));
  return found == state->comms.end() ? nullptr : found->second.get();
}

template <class T>
void add_up(const std::vector<Sum>& sums) {
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const Sum& of : sums) {
    from.push_back(of.from);
    to.push_back(of.to);
  }
  test::sum_ranks<T>(from, to, static_cast<std::int64_t>(sums[0].elements));
}

std::vector<Comm*> ranks_of(int clique) {
  std::vector<Comm*> ranks;
  for (const auto& [key, comm] : state->comms)
    if (comm->clique == clique) ranks.push_back(comm.get());
  std::ranges::sort(ranks, {}, &Comm::rank);
  return ranks;
}

// Makes the sums that all ranks of the clique have asked for.
ncclResult_t meet(int clique) {
  const std::vector<Comm*> ranks = ranks_of(clique);
  for (std::size_t& next = state->summed[clique];; ++next) {
    std::vector<Sum> sums;
    for (const Comm* comm : ranks)
      if (comm->sums.size() > next) sums.push_back(comm->sums[next]);
    if (sums.empty() || std::ssize(sums) < ranks[0]->ranks) return ncclSuccess;
    for (const Sum& of : sums)
      if (of.elements != sums[0].elements || of.type != sums[0].type)
        return misused("ranks see sums in different orders");
    switch (sums[0].type) {
      case ncclFloat32: add_up<float>(sums); break;
      case ncclFloat64: add_up<double>(sums); break;
      case ncclInt32: add_up<std::int32_t>(sums); break;
      case ncclFloat16: add_up<kernels::F16>(sums); break;
      case ncclBfloat16: add_up<kernels::BF16>(sums); break;
      default: return misused("a type that is not summed");
    }
  }
}

// Moves each sent message to the first rank that waits for it.
ncclResult_t deliver(int clique) {
  const std::vector<Comm*> ranks = ranks_of(clique);
  for (Comm* const from : ranks)
    for (auto sent = from->messages.begin(); sent != from->messages.end();) {
      const auto to = std::ranges::find(ranks, sent->peer, &Comm::rank);
      const auto waits = [&](const Message& m) { return !m.from && m.peer == from->rank; };
      if (!sent->from || to == ranks.end() || std::ranges::none_of((*to)->messages, waits)) {
        ++sent;
        continue;
      }
      const auto received = std::ranges::find_if((*to)->messages, waits);
      if (received->bytes != sent->bytes) return misused("a message has another size");
      std::memcpy(received->to, sent->from, sent->bytes);
      (*to)->messages.erase(received);
      sent = from->messages.erase(sent);
    }
  return ncclSuccess;
}

ncclResult_t gather(int clique) {
  const std::vector<Comm*> ranks = ranks_of(clique);
  for (std::size_t& next = state->gathered[clique];; ++next) {
    for (const Comm* comm : ranks)
      if (std::ssize(ranks) < comm->ranks || comm->gathers.size() <= next) return ncclSuccess;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const Sum& piece = ranks[r]->gathers[next];
      for (const Comm* to : ranks) {
        const Sum& all = to->gathers[next];
        if (all.elements != piece.elements) return misused("pieces have other sizes");
        std::memcpy(static_cast<std::byte*>(all.to) + r * piece.elements, piece.from,
                    piece.elements);
      }
    }
  }
}

ncclResult_t get_version(int* version) {
  *version = 22809;
  return ncclSuccess;
}
const char* get_error_string(ncclResult_t) { return "broken in a test"; }
const char* get_last_error(ncclComm_t) { return ""; }

ncclResult_t get_unique_id(ncclUniqueId* id) {
  const std::lock_guard lock(state->mutex);
  if (const ncclResult_t code = enter("ncclGetUniqueId"); code != ncclSuccess) return code;
  id->internal[0] = static_cast<char>(++state->cliques);
  return ncclSuccess;
}

ncclResult_t init_rank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                       ncclConfig_t* config) {
  const std::lock_guard lock(state->mutex);
  if (const ncclResult_t code = enter("ncclCommInitRankConfig"); code != ncclSuccess) return code;
  if (depth == 0 && ranks > 1) return misused("it would wait for the other ranks");
  if (config->blocking != 0) return misused("a communicator that blocks cannot be aborted");
  auto made = std::make_unique<Comm>(Comm{rank, ranks, id.internal[0]});
  begin(*made, "ncclCommInitRankConfig");
  *comm = reinterpret_cast<ncclComm_t>(made.get());
  state->comms[made.get()] = std::move(made);
  return ncclInProgress;
}

ncclResult_t init_all(ncclComm_t*, int, const int*) { return ncclInvalidUsage; }

// The communicators of a clique that are split become another clique.
ncclResult_t split(ncclComm_t handle, int color, int key, ncclComm_t* into, ncclConfig_t* config) {
  const std::lock_guard lock(state->mutex);
  if (const ncclResult_t code = enter("ncclCommSplit"); code != ncclSuccess) return code;
  Comm* const comm = find(handle);
  if (!comm || comm->questions != 0 || color != 0) return misused("an unexpected split");
  if (depth == 0 && comm->ranks > 1) return misused("it would wait for the other ranks");
  constexpr int kSplit = 1000;
  auto made = std::make_unique<Comm>(Comm{key, comm->ranks, comm->clique + kSplit});
  made->blocks = config->blocking == 1;
  comm->split = made.get();
  comm->into = into;
  begin(*comm, "ncclCommSplit");
  state->comms[made.get()] = std::move(made);
  return ncclInProgress;
}

ncclResult_t get_async_error(ncclComm_t handle, ncclResult_t* result) {
  const std::lock_guard lock(state->mutex);
  if (const ncclResult_t code = enter("ncclCommGetAsyncError"); code != ncclSuccess) return code;
  Comm* const comm = find(handle);
  if (!comm) return misused("a communicator that has ended is asked");
  *result = comm->questions != 0 ? ncclInProgress : comm->state;
  if (comm->questions == 0 && comm->split)  // only then does the caller get it
    *comm->into = reinterpret_cast<ncclComm_t>(std::exchange(comm->split, nullptr));
  if (comm->questions > 0) --comm->questions;
  return ncclSuccess;
}

ncclResult_t end_of(ncclComm_t handle, const char* call, bool aborts) {
  const std::lock_guard lock(state->mutex);
  const ncclResult_t code = enter(call);
  Comm* const comm = find(handle);
  if (!comm) return misused("a communicator ends twice");
  if (!aborts && !comm->finalized) misused("a communicator that is not finalized is destroyed");
  if (!aborts && comm->questions != 0) misused("a communicator in progress is destroyed");
  state->aborted += aborts;
  if (comm->split) state->comms.erase(comm->split);
  state->comms.erase(comm);
  return code;
}
ncclResult_t abort(ncclComm_t comm) { return end_of(comm, "ncclCommAbort", true); }
ncclResult_t destroy(ncclComm_t comm) { return end_of(comm, "ncclCommDestroy", false); }

ncclResult_t finalize(ncclComm_t handle) {
  const std::lock_guard lock(state->mutex);
  if (const ncclResult_t code = enter("ncclCommFinalize"); code != ncclSuccess) return code;
  Comm* const comm = find(handle);
  if (!comm || comm->finalized) return misused("a communicator is finalized twice, or has ended");
  if (comm->blocks && depth == 0) return misused("it may wait for the other ranks");
  comm->finalized = true;
  ++state->finalized;
  begin(*comm, "ncclCommFinalize");
  return comm->blocks ? ncclSuccess : ncclInProgress;
}

ncclResult_t all_reduce(const void* from, void* to, std::size_t elements, ncclDataType_t type,
                        ncclRedOp_t op, ncclComm_t handle, cudaStream_t) {
  const std::lock_guard lock(state->mutex);
  if (const ncclResult_t code = enter("ncclAllReduce"); code != ncclSuccess) return code;
  Comm* const comm = find(handle);
  if (!comm || op != ncclSum || elements == 0) return misused("an unexpected all-reduce");
  if (depth == 0) return misused("tensors of one launch are not one group");
  if (comm->questions != 0 && comm->sums.empty()) return misused("it is not ready yet");
  if (captures && !comm->blocks && comm->ranks > 1)
    return misused("a thread of NCCL enqueues it, which captures nothing");
  comm->sums.push_back({from, to, elements, type});
  begin(*comm, "ncclAllReduce");
  grouped.push_back(comm);
  return ncclSuccess;
}

// The communicator if it may take bytes now, else null.
Comm* take_bytes(const char* call, std::size_t bytes, ncclDataType_t type, ncclComm_t handle) {
  Comm* const comm = find(handle);
  if (!comm || depth == 0 || bytes == 0 || type != ncclInt8) return nullptr;
  if (captures || comm->blocks) return nullptr;  // peers may not have come yet
  begin(*comm, call);
  grouped.push_back(comm);
  return comm;
}

ncclResult_t all_gather(const void* from, void* to, std::size_t bytes, ncclDataType_t type,
                        ncclComm_t handle, cudaStream_t) {
  const std::lock_guard lock(state->mutex);
  if (const ncclResult_t code = enter("ncclAllGather"); code != ncclSuccess) return code;
  Comm* const comm = take_bytes("ncclAllGather", bytes, type, handle);
  if (!comm) return misused("an unexpected all-gather");
  comm->gathers.push_back({from, to, bytes, type});
  return ncclSuccess;
}

ncclResult_t send(const void* from, std::size_t bytes, ncclDataType_t type, int peer,
                  ncclComm_t handle, cudaStream_t) {
  const std::lock_guard lock(state->mutex);
  if (const ncclResult_t code = enter("ncclSend"); code != ncclSuccess) return code;
  Comm* const comm = take_bytes("ncclSend", bytes, type, handle);
  if (!comm || peer == comm->rank) return misused("an unexpected message is sent");
  comm->messages.push_back({peer, from, nullptr, bytes});
  return ncclSuccess;
}

ncclResult_t receive(void* to, std::size_t bytes, ncclDataType_t type, int peer, ncclComm_t handle,
                     cudaStream_t) {
  const std::lock_guard lock(state->mutex);
  if (const ncclResult_t code = enter("ncclRecv"); code != ncclSuccess) return code;
  Comm* const comm = take_bytes("ncclRecv", bytes, type, handle);
  if (!comm || peer == comm->rank) return misused("an unexpected message is waited for");
  comm->messages.push_back({peer, nullptr, to, bytes});
  return ncclSuccess;
}

ncclResult_t group_start() {
  const std::lock_guard lock(state->mutex);
  if (const ncclResult_t code = enter("ncclGroupStart"); code != ncclSuccess) return code;
  ++depth;
  return ncclSuccess;
}

ncclResult_t group_end() {
  const std::lock_guard lock(state->mutex);
  if (--depth < 0) return misused("a group ends that has not begun");
  std::vector<Comm*> of_group;
  of_group.swap(grouped);
  if (const ncclResult_t code = enter("ncclGroupEnd"); code != ncclSuccess) return code;
  for (const Comm* comm : of_group)
    if (comm->blocks != of_group[0]->blocks)
      return misused("a group has communicators that block and others that do not");
  for (Comm* comm : of_group) {
    if (state->stalls == "ncclGroupEnd") begin(*comm, "ncclGroupEnd");
    for (const auto done : {meet, deliver, gather})
      if (const ncclResult_t code = done(comm->clique); code != ncclSuccess) return code;
  }
  return !of_group.empty() && of_group[0]->blocks ? ncclSuccess : ncclInProgress;
}

}  // namespace

FakeNccl::FakeNccl() {
  require<InternalError>(!state, "two libraries of NCCL");
  state = new State;
  library_.ncclGetVersion = get_version;
  library_.ncclGetErrorString = get_error_string;
  library_.ncclGetLastError = get_last_error;
  library_.ncclGetUniqueId = get_unique_id;
  library_.ncclCommInitRankConfig = init_rank;
  library_.ncclCommInitAll = init_all;
  library_.ncclCommSplit = split;
  library_.ncclCommGetAsyncError = get_async_error;
  library_.ncclCommAbort = abort;
  library_.ncclCommFinalize = finalize;
  library_.ncclCommDestroy = destroy;
  library_.ncclAllReduce = all_reduce;
  library_.ncclAllGather = all_gather;
  library_.ncclSend = send;
  library_.ncclRecv = receive;
  library_.ncclGroupStart = group_start;
  library_.ncclGroupEnd = group_end;
  library_.version = 22809;
}

FakeNccl::~FakeNccl() {
  delete state;
  state = nullptr;
}

void FakeNccl::fail(std::string call, ncclResult_t code, int but) {
  const std::lock_guard lock(state->mutex);
  state->fails = std::move(call);
  state->code = code;
  state->but = but;
}

void FakeNccl::capture(bool on) { captures = on; }

void FakeNccl::stall(std::string call) {
  const std::lock_guard lock(state->mutex);
  state->stalls = std::move(call);
}

void FakeNccl::delay(int questions) {
  const std::lock_guard lock(state->mutex);
  state->delay = questions;
}

void FakeNccl::break_rank(int rank, ncclResult_t code) {
  const std::lock_guard lock(state->mutex);
  for (const auto& [key, comm] : state->comms)
    if (comm->rank == rank) comm->state = code;
}

int FakeNccl::alive() const { return static_cast<int>(state->comms.size()); }
int FakeNccl::finalized() const { return state->finalized; }
int FakeNccl::aborted() const { return state->aborted; }
int FakeNccl::called(const std::string& call) const { return state->called[call]; }
std::string FakeNccl::misuse() const { return state->misuse; }

}  // namespace belfry::cuda
