// A folder that this process may not read for a while.
#pragma once
#include <string>

#include <sys/stat.h>
#include <unistd.h>

namespace belfry {
namespace test {

// As long as it lives. Root, who may read everything, becomes another user meanwhile.
class UnreadFolder {
 public:
  explicit UnreadFolder(std::string path) : path_(std::move(path)) {
    constexpr uid_t kNobody = 65534;
    denied_ = ::chmod(path_.c_str(), 0) == 0 && (user_ != 0 || ::seteuid(kNobody) == 0);
  }
  ~UnreadFolder() {
    if (::seteuid(user_) == 0) ::chmod(path_.c_str(), 0700);
  }
  UnreadFolder(const UnreadFolder&) = delete;
  UnreadFolder& operator=(const UnreadFolder&) = delete;

  // False where a container does not let root do that.
  bool denied() const { return denied_; }

 private:
  const std::string path_;
  const uid_t user_ = ::geteuid();
  bool denied_ = false;
};

}  // namespace test
}  // namespace belfry
