#include "belfry/towers/tower_collectives.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/scopes.h"

namespace belfry {

Node& TowerCollectives::join(int tower, const Op& op, std::span<const Output> inputs,
                             std::string_view what, At at, NodeOptions options) {
  const SourceLine site = graph_.scopes().site_or(at.site);
  if (tower == 0) {
    Node& node = graph_.add_open(op, inputs, at, std::move(options));
    entries_.push_back({&node, std::string(what), site});
    return node;
  }
  require(next_ < entries_.size(), "towers disagree: tower ", tower, " comes to ", what,
          " (built at ", site, "), in which tower 0 does not take part",
          entries_.empty() ? std::string()
                           : cat("; its last is ", entries_.back().what, " (built at ",
                                 entries_.back().site, ")"));
  const Entry& entry = entries_[next_];
  require(entry.what == what && &entry.node->op() == &op,
          "towers disagree on what they build together: number ", next_, " is ", entry.what,
          " (built at ", entry.site, ") in tower 0, but ", what, " (built at ", site, ") in tower ",
          tower);
  ++next_;
  graph_.extend(*entry.node, inputs);
  return *entry.node;
}

void TowerCollectives::end_tower(int tower, SourceLine call) {
  if (tower > 0 && next_ < entries_.size())
    throw InvalidArgument(cat("towers disagree: ", entries_[next_].what, " (built at ",
                              entries_[next_].site, ") needs all towers, but tower ", tower,
                              ", replicated at ", call.str(), ", does not take part"));
  next_ = 0;
}

}  // namespace belfry
