// Writes the tar files that tests of readers read. It shares no code with the reader.
#pragma once
#include <cstdio>
#include <string>

#include "belfry/framework/base/text.h"

namespace belfry::test {

// A header with its sum, without content.
inline std::string tar_header(const std::string& name, std::uint64_t length, char kind = '0') {
  std::string header(512, '\0');
  char digits[32];
  header.replace(0, name.size(), name);
  header.replace(100, 7, "0000644");
  std::snprintf(digits, sizeof digits, "%011llo", static_cast<unsigned long long>(length));
  header.replace(124, 11, digits);
  header[156] = kind;
  header.replace(257, 8, std::string("ustar\00000", 8));
  header.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(digits, sizeof digits, "%06o", sum);
  header.replace(148, 7, std::string(digits) + '\0');
  return header;
}

inline std::string filled_up(std::string content) {
  content.resize((content.size() + 511) / 512 * 512);
  return content;
}

inline std::string tar_member(const std::string& name, const std::string& content,
                              char kind = '0') {
  return tar_header(name, content.size(), kind) + filled_up(content);
}

// "LENGTH KEY=VALUE\n" in a header before another one.
inline std::string pax_header(const std::string& key, const std::string& value) {
  const std::string rest = cat(" ", key, "=", value, "\n");
  std::size_t length = rest.size() + 1;
  while (cat(length).size() + rest.size() != length) ++length;
  return tar_member("pax", cat(length, rest), 'x');
}

inline std::string end_of_tar() { return std::string(1024, '\0'); }

// A sample: an image and its class.
inline std::string tar_sample(const std::string& key, const std::string& image,
                              const std::string& label, const std::string& kind = "jpg") {
  return tar_member(key + "." + kind, image) + tar_member(key + ".cls", label);
}

}  // namespace belfry::test
