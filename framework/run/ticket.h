#pragma once
#include <atomic>
#include <cstdint>

#include "belfry/framework/plan/schedule.h"

namespace belfry {

// Which parts of a shared launch are taken. The worker of the launch opens it to the others. It
// takes parts from the front, the others from the back, so a worker finds in its cache what it
// wrote in the previous run. A ticket holds the number of the opening, and the number of parts
// taken from either end. Workers take parts by compare-and-swap, so an old ticket never takes a
// part of another opening. Numbers start over after kOpenings. No ticket is that old: no worker is
// inside between two runs, and a worker opens fewer launches in one run (LinkedPlan::deal_routes).
class Ticket {
 public:
  enum class End : std::uint8_t { kFront, kBack };
  static constexpr std::int64_t kOpenings = std::int64_t{1} << 20;

  Ticket() = default;  // nothing is open
  // The ticket of the next opening.
  Ticket opened() const { return Ticket(((bits_ >> 2 * kBits) + 1) << 2 * kBits); }
  Ticket closed() const { return Ticket(bits_ | kNone); }
  Ticket taken(End end) const {
    return Ticket(bits_ + (end == End::kFront ? 1 : std::uint64_t{1} << kBits));
  }
  bool operator==(const Ticket&) const = default;
  bool has_part(std::int64_t parts) const { return front() + back() < parts; }
  // The next part to be taken.
  std::int64_t next(End end, std::int64_t parts) const {
    return end == End::kFront ? front() : parts - 1 - back();
  }

 private:
  static constexpr int kBits = 22;
  static_assert(kOpenings == std::int64_t{1} << (64 - 2 * kBits));
  static constexpr std::uint64_t kMost = (std::uint64_t{1} << kBits) - 1;
  static_assert(kMostParts < kMost);
  static constexpr std::uint64_t kNone = kMost << kBits | kMost;

  explicit Ticket(std::uint64_t bits) : bits_(bits) {}
  std::int64_t front() const { return static_cast<std::int64_t>(bits_ & kMost); }
  std::int64_t back() const { return static_cast<std::int64_t>(bits_ >> kBits & kMost); }

  std::uint64_t bits_ = kNone;
};

struct alignas(64) SharedLaunch {
  std::atomic<Ticket> ticket{Ticket()};
  std::atomic<int> launch{-1};  // its index
  std::atomic<std::int64_t> done{0};
};

}  // namespace belfry
