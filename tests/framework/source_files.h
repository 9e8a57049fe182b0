// Reads the project's own sources, for tests of rules over all of them.
#pragma once
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/file_system.h"

namespace belfry::test {

struct SourceFile {
  std::string path;  // below the repository: "ops/relu.cc"
  std::string text;

  std::string folder() const { return path.substr(0, path.rfind('/')); }
};

// The folders that users get; the rest is tests and scripts.
inline const std::vector<std::string> kShipped = {"framework", "ops",      "towers",
                                                  "allreduce", "trainers", "examples"};

// Every .h, .cc, .cu and .cuh below the given folders of the repository, sorted by path.
inline std::vector<SourceFile> source_files(const std::vector<std::string>& folders) {
  namespace fs = std::filesystem;
  const fs::path root = BELFRY_SOURCE_DIR;
  std::vector<SourceFile> files;
  for (const std::string& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".h" && extension != ".cc" && extension != ".cu" && extension != ".cuh")
        continue;
      const std::vector<std::byte> bytes = local_file_system().read(entry.path());
      files.push_back({entry.path().lexically_relative(root),
                       {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
    }
  }
  std::ranges::sort(files, {}, &SourceFile::path);
  return files;
}

// The names in the #include lines of `text`, with delimiters: `"belfry/ops/relu.h"`, `<vector>`.
inline std::vector<std::string> includes(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const auto skip = [&line](std::string_view word) {
      line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t")));
      if (!line.starts_with(word)) return false;
      line.remove_prefix(word.size());
      return true;
    };
    if (!skip("#") || !skip("include") || !skip("")) continue;
    const size_t end = line.empty() ? line.npos : line.find(line[0] == '<' ? '>' : '"', 1);
    names.emplace_back(line.substr(0, end == line.npos ? end : end + 1));
  }
  return names;
}

inline bool in_identifier(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// `text` without comments, and without the content of string and character literals.
inline std::string code_only(std::string_view text) {
  std::string code;
  const auto skip_past = [&text](std::string_view end, size_t from) {
    const size_t at = text.find(end, from);
    text.remove_prefix(at == text.npos ? text.size() : at + end.size());
  };
  while (!text.empty()) {
    const char c = text[0];
    const bool in_word = !code.empty() && in_identifier(code.back());
    if (text.starts_with("//")) {
      text.remove_prefix(std::min(text.size(), text.find('\n')));
    } else if (text.starts_with("/*")) {
      skip_past("*/", 2);
    } else if (text.starts_with("R\"") && !in_word) {
      const std::string_view tag = text.substr(2, text.find('(') - 2);
      skip_past(")" + std::string(tag) + "\"", 2);
      code += "\"\"";
    } else if (c == '"' || (c == '\'' && !in_word)) {  // in a word it separates digits
      size_t end = 1;
      while (end < text.size() && text[end] != c) end += text[end] == '\\' ? 2 : 1;
      text.remove_prefix(std::min(text.size(), end + 1));
      code += {c, c};
    } else {
      code += c;
      text.remove_prefix(1);
    }
  }
  return code;
}

// True if `code` (of code_only) holds `word` as a whole identifier; with `call`, followed by an
// opening parenthesis and no member of an object.
inline bool uses(std::string_view code, std::string_view word, bool call) {
  for (size_t at = code.find(word); at != code.npos; at = code.find(word, at + 1)) {
    const std::string_view before = code.substr(0, at), after = code.substr(at + word.size());
    if (!before.empty() && in_identifier(before.back())) continue;
    if (!after.empty() && in_identifier(after.front())) continue;
    if (!call) return true;
    const size_t next = after.find_first_not_of(" \t\n");
    if (next == after.npos || after[next] != '(') continue;
    if (before.ends_with('.') || before.ends_with("->")) continue;
    return true;
  }
  return false;
}

}  // namespace belfry::test
