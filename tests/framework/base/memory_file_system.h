// A disk that forgets. Data of a file is durable after sync(), entries of a directory after
// sync_directory(). A crash may lose the rest, or a part of it. The disk crashes or fails at a
// chosen call. Otherwise it does what FileSystem says. Paths are absolute and resolved; a link is a
// file that holds its target.
#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/require.h"

namespace belfry {

// Every call throws this once the machine is down.
struct Crash : std::runtime_error {
  Crash() : std::runtime_error("the machine is down") {}
};

class MemoryFileSystem final : public FileSystem {
 public:
  // A disk with one directory.
  explicit MemoryFileSystem(const std::string& root) {
    nodes_[root] = node(true);
    durable_ = nodes_;
  }

  // These act at the n-th call from now, counted from 0. One of them can be chosen at a time.
  // The machine goes down; the call has half written its bytes.
  void crash_at(int call) {
    at_call(call, [](MemoryFileSystem& disk) {
      disk.crashed_ = true;
      throw Crash();
    });
  }
  // The call alone throws IoError, and has half written its bytes.
  void fail_at(int call) {
    at_call(call, [](MemoryFileSystem&) { throw IoError("no space left on the disk"); });
  }
  // Calls f before the call.
  void at_call(int call, std::function<void(MemoryFileSystem&)> f) {
    calls_left_ = call;
    event_ = std::move(f);
  }
  bool crashed() const { return crashed_; }
  // From now on create_link() throws IoError.
  void refuse_links() { has_links_ = false; }
  // From now on files say that they have so many bytes more than they give.
  void add_to_sizes(std::uint64_t bytes) { more_bytes_ = bytes; }
  // Whether the chosen call is still to come.
  bool waits() const { return calls_left_ != kNever; }
  // A copy of the disk, with no chosen call.
  MemoryFileSystem again() const {
    MemoryFileSystem disk = *this;
    disk.calls_left_ = kNever;
    return disk;
  }

  // Changes of directories since they were last synced.
  std::size_t unsynced() const { return journal_.size(); }
  // The disk after the machine has come up again. It has the first `changes` of the unsynced
  // changes, and all data of files, or only synced data.
  MemoryFileSystem after_crash(std::size_t changes, bool all_data) const {
    MemoryFileSystem disk = *this;
    disk.calls_left_ = kNever;
    disk.crashed_ = false;
    disk.locked_.clear();
    disk.journal_.clear();
    disk.nodes_ = durable_;
    for (std::size_t i = 0; i < changes; ++i) apply(journal_[i], disk.nodes_);
    // Entries of directories that are gone themselves.
    for (auto at = disk.nodes_.begin(); at != disk.nodes_.end();) {
      const bool lost = parent(at->first) != "" && !disk.nodes_.contains(parent(at->first));
      at = lost ? disk.nodes_.erase(at) : std::next(at);
    }
    for (auto& [path, file] : disk.nodes_) {
      file = std::make_shared<Node>(*file);
      if (!all_data) file->data = file->synced;
      file->synced = file->data;
    }
    disk.durable_ = disk.nodes_;
    return disk;
  }

  std::unique_ptr<WritableFile> create(const std::string& path,
                                       const std::string& replaced = {}) override;
  std::unique_ptr<WritableFile> extend(const std::string& path, std::uint64_t size) override;
  std::unique_ptr<WritableFile> open_stream(const std::string&) override {
    call();
    return nullptr;
  }
  int descriptor(const std::string&) override { return -1; }
  std::unique_ptr<ReadableFile> open(const std::string& path) override;
  std::unique_ptr<FileLock> lock(const std::string& path) override;
  bool exists(const std::string& path) override {
    try {
      return kind(path) != FileKind::kNone;
    } catch (const IoError&) {
      return false;
    }
  }
  FileKind kind(const std::string& path) override {
    call();
    return kind_of(path);
  }
  FileKind target_kind(const std::string& path) override { return kind(path); }
  std::string resolve(const std::string& path) override {
    call();
    return path;
  }
  std::vector<std::string> list(const std::string& directory) override {
    call();
    require_directory(directory);
    return names_in(directory);
  }
  void create_directory(const std::string& path) override {
    call();
    make_directory(path);
  }
  void create_link(const std::string& path, const std::string& target) override {
    call();
    require<IoError>(has_links_, path, ": this file system has no links");
    require<IoError>(kind_of(path) == FileKind::kNone, path, ": is there");
    require_directory(parent(path));
    change({Change::kAdd, path, "", node(false)});
    const auto bytes = std::as_bytes(std::span(target));
    Node& made = *nodes_.at(path);
    made.data.assign(bytes.begin(), bytes.end());
    made.synced = made.data;
  }
  void rename(const std::string& from, const std::string& to) override {
    call();
    const FileKind old = kind_of(to);
    require<IoError>(kind_of(from) != FileKind::kNone && parent(from) == parent(to) &&
                         (old == FileKind::kNone || old == kind_of(from)) && names_in(to).empty(),
                     from, ": cannot rename to ", to);
    if (from != to) change({Change::kRename, from, to, nullptr});
  }
  void remove(const std::string& path) override {
    call();
    require<IoError>(names_in(path).empty(), path, " is not empty");
    if (nodes_.contains(path)) change({Change::kRemove, path, "", nullptr});
  }
  void sync_directory(const std::string& path) override {
    call();
    require_directory(path);
    // A rename within a directory is one change.
    std::vector<Change> rest;
    for (const Change& change : journal_) {
      if (parent(change.path) != path) {
        rest.push_back(change);
        continue;
      }
      apply(change, durable_);
      // Entries of a removed directory went with it, and its name may now belong to another.
      if (change.kind == Change::kRemove)
        std::erase_if(rest, [&](const Change& c) { return parent(c.path) == change.path; });
    }
    journal_ = std::move(rest);
  }

 private:
  friend class MemoryFile;
  friend class MemoryReadableFile;
  friend class MemoryLock;
  struct Node {
    bool directory;
    std::vector<std::byte> data, synced;
  };
  using Nodes = std::map<std::string, std::shared_ptr<Node>>;  // by path
  struct Change {
    enum Kind { kAdd, kRename, kRemove } kind;
    std::string path, to;
    std::shared_ptr<Node> node;
  };

  static std::shared_ptr<Node> node(bool directory) {
    return std::make_shared<Node>(Node{directory, {}, {}});
  }
  static std::string parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

  void call() {
    if (crashed_) throw Crash();
    if (calls_left_ != kNever && calls_left_-- == 0) event_(*this);
  }
  FileKind kind_of(const std::string& path) const {
    const auto found = nodes_.find(path);
    if (found == nodes_.end()) return FileKind::kNone;
    return found->second->directory ? FileKind::kDirectory : FileKind::kFile;
  }
  void require_directory(const std::string& path) const {
    require<IoError>(kind_of(path) == FileKind::kDirectory, path, ": no such directory");
  }
  std::vector<std::string> names_in(const std::string& directory) const {
    std::vector<std::string> names;
    for (const auto& [path, node] : nodes_)
      if (parent(path) == directory) names.push_back(path.substr(directory.size() + 1));
    return names;
  }
  void make_directory(const std::string& path) {
    if (kind_of(path) == FileKind::kDirectory) return;
    require<IoError>(!path.empty() && !nodes_.contains(path), path, ": cannot create directory");
    make_directory(parent(path));
    change({Change::kAdd, path, "", node(true)});
  }
  void change(const Change& change) {
    apply(change, nodes_);
    journal_.push_back(change);
  }
  // Entries below a directory go with it.
  static void apply(const Change& change, Nodes& nodes) {
    if (change.kind == Change::kAdd) {
      nodes[change.path] = change.node;
      return;
    }
    Nodes rest;
    for (auto& [path, node] : nodes) {
      const bool inside = path == change.path || path.starts_with(change.path + "/");
      const bool replaced = change.kind == Change::kRename && path == change.to;
      if (!inside && !replaced) rest[path] = node;
      if (inside && change.kind == Change::kRename)
        rest[change.to + path.substr(change.path.size())] = node;
    }
    nodes = std::move(rest);
  }

  Nodes nodes_, durable_;
  std::vector<Change> journal_;  // not yet in durable_
  std::set<std::string> locked_;
  static constexpr int kNever = -1;
  int calls_left_ = kNever;
  std::function<void(MemoryFileSystem&)> event_;
  bool crashed_ = false, has_links_ = true;
  std::uint64_t more_bytes_ = 0;
};

class MemoryFile final : public WritableFile {
 public:
  MemoryFile(MemoryFileSystem& disk, std::shared_ptr<MemoryFileSystem::Node> node)
      : disk_(disk), node_(std::move(node)) {}
  void append(std::span<const std::byte> bytes) override {
    try {
      disk_.call();
    } catch (...) {
      write(bytes.first(bytes.size() / 2));
      throw;
    }
    write(bytes);
  }
  void sync() override {
    disk_.call();
    node_->synced = node_->data;
  }
  void close() override { disk_.call(); }

 private:
  void write(std::span<const std::byte> bytes) {
    node_->data.insert(node_->data.end(), bytes.begin(), bytes.end());
  }
  MemoryFileSystem& disk_;
  std::shared_ptr<MemoryFileSystem::Node> node_;
};

class MemoryReadableFile final : public ReadableFile {
 public:
  MemoryReadableFile(MemoryFileSystem& disk, std::shared_ptr<MemoryFileSystem::Node> node)
      : disk_(disk), node_(std::move(node)), size_(node_->data.size() + disk.more_bytes_) {}
  std::uint64_t size() const override { return size_; }
  void seek(std::uint64_t offset) override {
    disk_.call();
    used_ = std::min<std::size_t>(offset, node_->data.size());
  }
  std::size_t read(std::span<std::byte> out) override {
    disk_.call();
    const std::size_t count = std::min(out.size(), node_->data.size() - used_);
    std::copy_n(node_->data.begin() + static_cast<std::ptrdiff_t>(used_), count, out.begin());
    used_ += count;
    return count;
  }

 private:
  MemoryFileSystem& disk_;
  std::shared_ptr<MemoryFileSystem::Node> node_;
  std::size_t size_, used_ = 0;
};

// If removing the file fails, it stays, and keeps nobody out.
class MemoryLock final : public FileLock {
 public:
  MemoryLock(MemoryFileSystem& disk, std::string path) : disk_(disk), path_(std::move(path)) {}
  ~MemoryLock() override {
    disk_.locked_.erase(path_);
    try {
      disk_.remove(path_);
    } catch (const std::exception&) {
    }
  }

 private:
  MemoryFileSystem& disk_;
  std::string path_;
};

inline std::unique_ptr<WritableFile> MemoryFileSystem::create(const std::string& path,
                                                              const std::string& /*replaced*/) {
  call();
  require_directory(parent(path));
  require<IoError>(kind_of(path) != FileKind::kDirectory, path, ": is a directory");
  if (!nodes_.contains(path)) change({Change::kAdd, path, "", node(false)});
  nodes_.at(path)->data.clear();
  return std::make_unique<MemoryFile>(*this, nodes_.at(path));
}

inline std::unique_ptr<WritableFile> MemoryFileSystem::extend(const std::string& path,
                                                              std::uint64_t size) {
  if (size == 0 && kind_of(path) == FileKind::kNone) return create(path);
  call();
  require<IoError>(kind_of(path) == FileKind::kFile, path, ": is no file");
  require<IoError>(nodes_.at(path)->data.size() >= size, path, ": is shorter");
  nodes_.at(path)->data.resize(size);
  return std::make_unique<MemoryFile>(*this, nodes_.at(path));
}

inline std::unique_ptr<ReadableFile> MemoryFileSystem::open(const std::string& path) {
  call();
  require<NotFoundError>(nodes_.contains(path), path, ": no such file");
  require<IoError>(kind_of(path) == FileKind::kFile, path, ": is a directory");
  return std::make_unique<MemoryReadableFile>(*this, nodes_.at(path));
}

inline std::unique_ptr<FileLock> MemoryFileSystem::lock(const std::string& path) {
  call();
  require_directory(parent(path));
  require<IoError>(
      !nodes_.contains(path) || (kind_of(path) == FileKind::kFile && nodes_.at(path)->data.empty()),
      path, ": is in the way of a lock");
  if (!locked_.insert(path).second) return nullptr;
  if (!nodes_.contains(path)) change({Change::kAdd, path, "", node(false)});
  return std::make_unique<MemoryLock>(*this, path);
}

}  // namespace belfry
