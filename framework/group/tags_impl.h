// The tags of messages that belong to no step. Steps number their tags from 0.
#pragma once

namespace belfry {

// One list, so that no tag has two uses.
enum ReservedTag : int {
  kSizesTag = 1 << 20,  // gather() and collect()
  kContentsTag,
  kSignTag,   // signs of life
  kClockTag,  // clock_offsets()
  kAskTag,    // PartServer
  kAnswerTag,
};

}  // namespace belfry
