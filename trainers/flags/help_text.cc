#include "belfry/trainers/flags/help_text.h"

#include <algorithm>
#include <cctype>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

constexpr std::size_t kHelpColumns = 100, kHelpIndent = 30;

// `text` in lines of at most `columns`, broken at blanks and, in long lists, after a '|'.
std::string wrapped_help(std::string_view text, std::size_t columns) {
  std::string lines;
  std::size_t used = 0;
  for (std::string_view word : split(text, ' ')) {
    const bool fits = used > 0 && used + 1 + word.size() <= columns;
    if (used > 0) lines += fits ? ' ' : '\n';
    used = fits ? used + 1 : 0;
    for (std::size_t bar;
         word.size() > columns && (bar = word.rfind('|', columns - 1)) != word.npos;
         word.remove_prefix(bar + 1))
      lines += cat(word.substr(0, bar + 1), '\n');
    used += word.size();
    lines += word;
  }
  return lines;
}

// "  NAME      TEXT", with all lines of the text under the first.
std::string help_entry(const std::string& name, std::string_view text) {
  std::string result = "  " + name;
  const bool fits = result.size() < kHelpIndent;
  result +=
      fits ? std::string(kHelpIndent - result.size(), ' ') : "\n" + std::string(kHelpIndent, ' ');
  for (const char c : wrapped_help(text, kHelpColumns - kHelpIndent)) {
    result += c;
    if (c == '\n') result.append(kHelpIndent, ' ');
  }
  return result + "\n";
}

std::string flag_with_unit(const OptionRow& row) {
  return cat("--", row.name, row.unit.empty() ? "" : " ", row.unit);
}

std::string help_entry(const OptionRow& row) {
  return help_entry(cat(row.letter ? cat("-", row.letter, ",") : "", flag_with_unit(row)),
                    cat(row.help(), row.here.empty() ? "" : " ", row.here));
}

// In the order of their first rows, but for spellings of another program, which come last.
std::vector<std::string> help_groups(std::span<const OptionRow> rows) {
  std::vector<std::string> groups;
  for (const OptionRow& row : rows)
    if (!row.text.empty() && std::ranges::find(groups, row.group) == groups.end())
      groups.push_back(row.group);
  std::ranges::stable_partition(groups, [](auto& group) { return group != kOtherProgram; });
  return groups;
}

std::string help_of_group(std::span<const OptionRow> rows, const std::string& group) {
  std::string text = cat("\n", group, ":\n");
  for (const OptionRow& row : rows)
    if (row.group == group && !row.text.empty()) text += help_entry(row);
  return text;
}

// "RUN...", "[FOLDER]".
std::string usage_of(const ArgumentRow& argument) {
  return cat(argument.needed ? "" : "[", argument.unit, argument.several ? "..." : "",
             argument.needed ? "" : "]");
}

std::string name_for_shell(std::string_view program) {
  std::string name(program);
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return "_belfry_" + name;
}

// The text of a cell of a table. Bars would end the cell, and names in <> would be tags. Options in
// backquotes are flags.
std::string in_cell(std::string_view text) {
  std::string cell;
  bool is_code = false;
  for (const char c : text) {
    const bool is_special = c == '|' || (!is_code && (c == '<' || c == '*' || c == '_'));
    if (is_special) cell += '\\';
    cell += c;
    if (c == '`' && (is_code = !is_code)) cell += "--";
  }
  return cell;
}

std::string flag_in_cell(const OptionRow& row) {
  const std::string name = cat(row.name, row.unit.empty() ? "" : "=", row.unit);
  return cat(row.letter ? cat("`-", row.letter, "`, ") : "", in_cell(cat("`", name, "`")));
}

}  // namespace

std::string HelpText::str() const {
  std::string text =
      cat(wrapped_help(description, kHelpColumns), "\nUsage: ", program, " [OPTIONS]");
  for (const ArgumentRow& argument : arguments) text += cat(" ", usage_of(argument));
  text += "\n";
  if (!arguments.empty()) text += "\nArguments:\n";
  for (const ArgumentRow& argument : arguments)
    text += help_entry(cat(argument.unit, argument.several ? " ..." : ""), argument.text);
  for (const std::string& of : help_groups(rows)) text += help_of_group(rows, of);
  return text;
}

std::string HelpText::group(std::string_view name) const {
  std::string text;
  const std::vector<std::string> groups = help_groups(rows);
  for (const std::string& of : groups)
    if (lower(of).starts_with(lower(name))) text += help_of_group(rows, of);
  require<FlagError>(!text.empty(), "--help=", shown(name),
                     " is no group; groups begin with one of: ", join(groups, ", "));
  return text.substr(1);
}

std::vector<std::string_view> words_of(const OptionRow& row) {
  const std::size_t bar = row.unit.find('|');
  if (bar == row.unit.npos || row.unit.find(':') < bar) return {};  // "NAME:min|max" has none
  std::vector<std::string_view> words = split(row.unit, '|');
  std::erase_if(words, [](std::string_view word) {
    return std::ranges::any_of(word, [](unsigned char c) { return std::isupper(c) != 0; });
  });
  return words;
}

std::string completion_script(std::string_view program, std::span<const OptionRow> rows) {
  const std::string function = name_for_shell(program);
  std::string cases, flags;
  for (const OptionRow& row : rows) {
    if (row.text.empty()) continue;
    flags += cat(flags.empty() ? "" : " ", "--", row.name, row.unit.empty() ? "" : "=");
    const std::vector<std::string_view> words = words_of(row);
    if (!words.empty()) cases += cat("    --", row.name, ") words=\"", join(words, " "), "\" ;;\n");
  }
  // bash breaks words at '=', which is then a word of its own.
  return cat(function, "() {\n  local word=${COMP_WORDS[COMP_CWORD]}",
             " flag=${COMP_WORDS[COMP_CWORD-1]} words\n"
             "  if [ \"$word\" = = ]; then word=; elif [ \"$flag\" = = ]; then "
             "flag=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
             "  COMPREPLY=()\n  case $flag in\n",
             cases, "    *) words=\"", flags,
             "\" ;;\n  esac\n"
             "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
             "  [[ ${COMPREPLY-} == *= ]] && compopt -o nospace\n"
             "  return 0\n}\ncomplete -o default -F ",
             function, " ", program, "\n");
}

std::string flag_tables(std::span<const OptionRow> rows) {
  std::string text;
  for (const std::string& group : help_groups(rows)) {
    if (group == kOtherProgram) continue;
    text += cat("\n## ", group, "\n\n| flag | what it does | default |\n| --- | --- | --- |\n");
    for (const OptionRow& row : rows)
      if (row.group == group && !row.text.empty())
        text += cat("| ", flag_in_cell(row), " | ", in_cell(row.text), " | ",
                    in_cell(row.otherwise), " |\n");
  }
  return text;
}

}  // namespace belfry
