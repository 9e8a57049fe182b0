#include "belfry/framework/graph/explanation.h"

#include "belfry/framework/base/numeric_order.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/graph.h"

namespace belfry {

Explanation Graph::explain(const Output& output) const {
  const Node& node = output.node();
  require(&node.graph() == this, node.describe(), ": belongs to another graph");
  Explanation result;
  result.node = node.name();
  result.type = node.op().name;
  result.requested = node.device().str();
  for (const DeviceReason& reason : node.request().reasons) {
    result.scopes.push_back(
        {std::string(reason.site.file_name()), static_cast<int>(reason.site.line), reason.what()});
    if (reason.load) result.load = *reason.load;
  }
  for (const Node* anchor : node.request().colocation)
    result.colocation.emplace_back(anchor->name());
  return result;
}

std::string Explanation::str() const {
  std::string text = cat(node, ": (", type, ")\n");
  if (!device.empty()) text += cat("  device: ", device, "\n");
  text += cat("  requested: ", requested.empty() ? "any device" : requested, "\n");
  for (const Scope& scope : scopes)
    text += cat("    ", scope.what, " at ", scope.file, ":", scope.line, "\n");
  for (const auto& [name, elements] : in_numeric_order(load))
    text += cat("    load then: ", name, " ", elements, " elements\n");
  if (!colocation.empty()) text += cat("  colocated with: ", join(colocation), "\n");
  for (const Pull& pull : pulls)
    text += cat("    ", pull.who, " pulled ", pull.whom, ": ", pull.why, "\n");
  for (const Candidate& candidate : candidates)
    text += cat(candidate.device == device ? "  * "
                : candidate.kept           ? "  + "
                                           : "  - ",
                candidate.device, ": ", candidate.reason, "\n");
  if (!fallback.empty()) text += cat("  soft placement: ", fallback, "\n");
  return text + step_text();
}

std::string Explanation::step_text() const {
  if (shards == 0) return "";
  std::string text;
  if (!fused_into.empty()) text += cat("  fused with others into: ", fused_into, "\n");
  text += cat("  shards of the device: ", shards, "; runs ", runs == 1 ? "once" : "once for each",
              "\n");
  for (const DividedOutput& output : outputs) {
    text += cat("    ", output.type, ": ", output.division);
    if (!output.added_by.empty()) text += cat(", added up by ", join(output.added_by));
    text += "\n";
  }
  for (const WholeCopy& copy : copies)
    text += cat("    copy ", copy.name, ", ", copy.bytes, " bytes, for ", join(copy.users), "\n");
  return text;
}

}  // namespace belfry
