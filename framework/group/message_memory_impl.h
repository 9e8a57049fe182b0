// Memory of messages.
#pragma once
#include <exception>
#include <memory>

#include "belfry/framework/group/group.h"

namespace belfry::detail {

// Holds what messages of a group read and write, and the messages. If an exception leaves the
// scope, messages may be under way, and the group forgets them. If it cannot, the memory is never
// freed.
template <class T>
class MessageMemory {
 public:
  explicit MessageMemory(ProcessGroup& group) : group_(group) {}
  ~MessageMemory() {
    if (std::uncaught_exceptions() > exceptions_ && !group_.forget_messages())
      static_cast<void>(memory_.release());
  }
  MessageMemory(const MessageMemory&) = delete;
  MessageMemory& operator=(const MessageMemory&) = delete;

  T& operator*() const { return *memory_; }
  T* operator->() const { return memory_.get(); }

 private:
  ProcessGroup& group_;
  std::unique_ptr<T> memory_ = std::make_unique<T>();
  const int exceptions_ = std::uncaught_exceptions();
};

}  // namespace belfry::detail
