// The module libbelfry_mpi.so: processes started by MPI. The only place that knows MPI. Only the
// calls that initialise and finalise MPI block.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include <belfry_build_identity.h>
#include <mpi.h>

#include "belfry/framework/base/require.h"
#include "belfry/framework/group/mpi_module.h"
#include "belfry/framework/group/peer_error.h"
#include "belfry/framework/group/tags.h"

namespace belfry {
namespace {

// MPI counts are ints, so larger messages are sent in pieces.
constexpr std::size_t kPiece = std::size_t{1} << 30;

std::string text_of(int error) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(error, text, &length);
  return {text, static_cast<std::size_t>(length)};
}

void check(int error, const char* call) {
  require<CommError>(error == MPI_SUCCESS, call, ": ", text_of(error));
}

class MpiGroup final : public ProcessGroup {
 public:
  MpiGroup() {
    // Open MPI's TCP writes a large message in one go, and reads nothing meanwhile: two messages
    // that cross each other take twice the time. It reads between fragments. Users may set another
    // size.
    setenv("OMPI_MCA_btl_tcp_rdma_pipeline_frag_size", "131072", false);
    // A separate thread moves messages while the thread of the group naps, or has no core. It reads
    // up to 256 KiB at once. Where srun starts processes itself, messages arrive before MPI_Init
    // has ended, and this thread of Open MPI 4.1 calls a function that is not there yet.
    if (getenv("OMPI_COMM_WORLD_SIZE")) setenv("OMPI_MCA_btl_tcp_progress_thread", "1", false);
    setenv("OMPI_MCA_btl_tcp_endpoint_cache", "262144", false);
    int threads = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &threads), "MPI_Init_thread");
    require<CommError>(threads >= MPI_THREAD_SERIALIZED,
                       "this MPI serves one thread alone; take one with MPI_THREAD_SERIALIZED");
    check(MPI_Comm_dup(MPI_COMM_WORLD, &all_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(all_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(all_, &rank_);
    int size = 0;
    MPI_Comm_size(all_, &size);
    learn_hosts(size);
    for (int r = 0; r < size; ++r)
      if (r != rank_) others_.push_back(r);
    require_tags();
    received_from_.resize(at(size));
    check(MPI_Irecv(reason_.data(), static_cast<int>(reason_.size()), MPI_CHAR, MPI_ANY_SOURCE,
                    kEndTag, all_, &ended_by_other_),
          "MPI_Irecv");
  }
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;
  ~MpiGroup() override {
    if (ended_by_other_ != MPI_REQUEST_NULL) MPI_Cancel(&ended_by_other_);
    if (failed_) return;  // others may never get to the end; the launcher ends them
    MPI_Wait(&ended_by_other_, MPI_STATUS_IGNORE);
    for (MPI_Request& request : requests_) {  // of messages that never came
      MPI_Cancel(&request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Comm_free(&all_);
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hosts_.size()); }
  const std::string& host(int rank) const override {
    return hosts_[static_cast<std::size_t>(rank)];
  }
  std::string transport() const override { return "MPI"; }
  const std::vector<int>& connected() const override { return others_; }

  void send(GroupMessage& message) override {
    post(message, Kind::kSent, [&](std::span<std::byte> bytes, MPI_Request* request) {
      return MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, message.peer,
                       message.tag, all_, request);
    });
  }
  void receive(GroupMessage& message) override {
    post(message, Kind::kReceived, [&](std::span<std::byte> bytes, MPI_Request* request) {
      return MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, message.peer,
                       message.tag, all_, request);
    });
  }

  void sum(GroupMessage& message, DType dtype) override {
    const MPI_Datatype type = dtype == DType::kF32 ? MPI_FLOAT : MPI_DOUBLE;
    post(message, Kind::kSummed, [&](std::span<std::byte> bytes, MPI_Request* request) {
      const int count = static_cast<int>(bytes.size() / size_of(dtype));
      return MPI_Iallreduce(MPI_IN_PLACE, bytes.data(), count, type, MPI_SUM, all_, request);
    });
  }

  bool poll() override {
    hear_of_end();
    if (requests_.empty()) return std::exchange(moved_, false);
    const int posted = static_cast<int>(requests_.size());
    int count = 0;
    finished_.resize(requests_.size());
    statuses_.resize(requests_.size());
    const int error =
        MPI_Testsome(posted, requests_.data(), &count, finished_.data(), statuses_.data());
    if (error != MPI_SUCCESS && error != MPI_ERR_IN_STATUS) {
      failed_ = true;
      check(error, "MPI_Testsome");
    }
    for (int i = 0; i < count; ++i) end_piece(finished_[at(i)], statuses_[at(i)], error);
    if (count > 0) forget_finished();
    return std::exchange(moved_, false);
  }

  std::uint64_t received_from(int rank) const override { return received_from_[at(rank)]; }

  // MPI can cancel receives whose messages have not begun to arrive. Others may end within a
  // moment. The rest still need their memory, which a thread of MPI may read or write at any time.
  bool forget_messages() noexcept override {
    constexpr std::chrono::milliseconds kMoment{200};
    failed_ = true;
    if (std::exchange(forgotten_, true)) return requests_.empty();
    for (std::size_t i = 0; i < requests_.size(); ++i)
      if (pieces_[i].kind == Kind::kReceived) MPI_Cancel(&requests_[i]);
    const auto last = std::chrono::steady_clock::now() + kMoment;
    for (Backoff backoff; !requests_.empty() && std::chrono::steady_clock::now() < last;) {
      int count = 0;
      finished_.resize(requests_.size());
      const int posted = static_cast<int>(requests_.size());
      MPI_Testsome(posted, requests_.data(), &count, finished_.data(), MPI_STATUSES_IGNORE);
      if (count > 0) forget_finished();
      backoff.nap();
    }
    return requests_.empty();
  }

  void end_others(const std::string& why) noexcept override {
    forget_messages();
    // MPI may read the reason until the process ends, so it is never freed.
    const auto* const kept = new std::string(why.substr(0, kLongestReason));
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      MPI_Request request;  // the process ends soon: nobody waits for it
      MPI_Isend(kept->data(), static_cast<int>(kept->size()), MPI_CHAR, r, kEndTag, all_, &request);
      MPI_Request_free(&request);
    }
  }

 private:
  enum class Kind { kSent, kReceived, kSummed };
  struct Piece {
    GroupMessage* message;
    std::size_t bytes;
    Kind kind;
  };

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  void learn_hosts(int size) {
    using Name = std::array<char, MPI_MAX_PROCESSOR_NAME>;
    Name own{};
    int length = 0;
    MPI_Get_processor_name(own.data(), &length);
    std::vector<Name> names(at(size));
    check(MPI_Allgather(own.data(), sizeof(Name), MPI_CHAR, names.data(), sizeof(Name), MPI_CHAR,
                        all_),
          "MPI_Allgather");
    for (const Name& name : names) hosts_.emplace_back(name.data());
  }

  void require_tags() const {
    int* most = nullptr;
    int known = 0;
    check(MPI_Comm_get_attr(all_, MPI_TAG_UB, &most, &known), "MPI_Comm_get_attr");
    require<CommError>(known && *most >= kEndTag, "this MPI has tags up to ", known ? *most : 0,
                       " alone; take one with those that the standard demands, up to ",
                       int{kEndTag});
  }

  // Posts a message piece by piece: start(bytes, &request) returns MPI's error.
  template <class Start>
  void post(GroupMessage& message, Kind kind, const Start& start) {
    message.done = false;
    for (std::size_t from = 0; from == 0 || from < message.bytes.size(); from += kPiece) {
      const std::size_t size = std::min(kPiece, message.bytes.size() - from);
      MPI_Request request = MPI_REQUEST_NULL;
      const int error = start(message.bytes.subspan(from, size), &request);
      if (error != MPI_SUCCESS) fail(message.peer, text_of(error));
      requests_.push_back(request);
      pieces_.push_back({&message, size, kind});
    }
  }

  void end_piece(int i, const MPI_Status& status, int error) {
    const Piece& piece = pieces_[at(i)];
    const int peer = piece.message->peer;
    if (error == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_SUCCESS)
      fail(peer, text_of(status.MPI_ERROR));
    if (piece.kind == Kind::kReceived) {
      int count = 0;
      MPI_Get_count(&status, MPI_BYTE, &count);
      if (at(count) != piece.bytes)
        fail(peer, cat("sends ", count, " bytes where ", piece.bytes, " are expected (tag ",
                       piece.message->tag, "): the processes do not run the same plan"));
      received_from_[at(piece.message->peer)] += piece.bytes;
    }
    ++ended_[piece.message];
    const std::size_t pieces =
        std::max<std::size_t>(1, (piece.message->bytes.size() + kPiece - 1) / kPiece);
    if (ended_[piece.message] < pieces) return;
    ended_.erase(piece.message);
    if (piece.kind == Kind::kReceived) piece.message->end();
    piece.message->done = true;
    moved_ = true;
  }

  void forget_finished() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      requests_[kept] = requests_[i];
      pieces_[kept++] = pieces_[i];
    }
    requests_.resize(kept);
    pieces_.resize(kept);
  }

  void hear_of_end() {
    int heard = 0;
    MPI_Status status;
    check(MPI_Test(&ended_by_other_, &heard, &status), "MPI_Test");
    if (!heard) return;
    failed_ = true;
    int length = 0;
    MPI_Get_count(&status, MPI_CHAR, &length);
    throw_reason(status.MPI_SOURCE, host(status.MPI_SOURCE), {reason_.data(), at(length)});
  }

  [[noreturn]] void fail(int peer, std::string why) {
    failed_ = true;
    blame_peer(*this, peer, std::move(why));
  }

  MPI_Comm all_ = MPI_COMM_NULL;
  int rank_ = 0;
  std::vector<std::string> hosts_;
  std::vector<int> others_;
  std::vector<MPI_Request> requests_;
  std::vector<Piece> pieces_;                         // of each request
  std::map<const GroupMessage*, std::size_t> ended_;  // pieces of messages that are not done
  std::vector<int> finished_;
  std::vector<MPI_Status> statuses_;
  std::vector<std::uint64_t> received_from_;
  bool moved_ = false;
  bool failed_ = false;
  bool forgotten_ = false;  // forget_messages()
  std::array<char, kLongestReason> reason_ = {};
  MPI_Request ended_by_other_ = MPI_REQUEST_NULL;
};

}  // namespace
}  // namespace belfry

extern "C" belfry::ProcessGroup* belfry_open_mpi(const char* wanted, std::string* why) {
  try {
    if (std::strcmp(wanted, BELFRY_BUILD_IDENTITY) == 0) return new belfry::MpiGroup;
    *why = "is of another build (" BELFRY_BUILD_IDENTITY "); build both again";
  } catch (const std::exception& error) {
    *why = error.what();
  }
  return nullptr;
}
