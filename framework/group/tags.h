// The tags of messages: those of steps, and those of messages that belong to no step. Every MPI has
// tags up to 32,767.
#pragma once

namespace belfry {

// One list, so that no tag has two uses.
enum ReservedTag : int {
  kFirstReservedTag = 32'000,
  kSizesTag = kFirstReservedTag,  // gather() and collect()
  kContentsTag,
  kHeartbeatTag,
  kLeaveTag,  // the sender no longer needs the receiver
  kClockTag,  // clock_offsets()
  kAskTag,    // PartServer
  kAnswerTag,
  kMomentsTag,       // GatherMoments: all processes send these in one order
  kEndTag = 32'767,  // ends the receiver; the bytes say why
};

// Steps number their exchanges from 0, and start over after this many. All processes send in one
// order, so a tag may have two uses in a step.
inline constexpr int kStepTags = kFirstReservedTag;

// Whether messages of this tag overtake longer ones that were posted before.
constexpr bool overtakes(int tag) { return tag == kHeartbeatTag || tag == kEndTag; }

// Whether a message of this tag may never come: requests of processes that may have none. Who
// expects one does not wait for its sender.
constexpr bool may_never_come(int tag) { return tag == kAskTag; }

}  // namespace belfry
