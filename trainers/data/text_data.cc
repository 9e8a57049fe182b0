#include "belfry/trainers/data/text_data.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/option_name.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/counter_random.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {
namespace {

std::vector<Dataset::Field> window_fields(std::int64_t length) {
  return {{"tokens", DType::kI32, {length}}, {"label", DType::kI32, {length}}};
}

class WindowDataset final : public Dataset {
 public:
  explicit WindowDataset(TokenWindows windows) : windows_(std::move(windows)) {
    // A window also needs the label of its last token.
    const std::int64_t tokens = windows_.end - windows_.begin;
    places_ = tokens - windows_.length;
    apart_ = (tokens - 1) / windows_.length;
    if (windows_.length < 1 || places_ < 1)
      throw InvalidArgument(about_option(
          "data_dir", windows_.tokens->describe(), ": ", tokens, " tokens have no window of ",
          windows_.length, " and one that follows; give more (", the_option("data_dir"), ")"));
  }

  std::vector<Field> signature() const override { return window_fields(windows_.length); }
  std::int64_t size() const override {
    return windows_.per_epoch > 0 ? windows_.per_epoch : apart_;
  }
  std::string describe() const override {
    return cat("tokens ", windows_.begin, " to ", windows_.end, " of ", windows_.tokens->describe(),
               ", ", size(), " windows of ", windows_.length);
  }
  const Vocabulary* vocabulary() const override { return windows_.tokens->vocabulary(); }
  std::int64_t left_out() const override { return windows_.bad ? windows_.bad->count() : 0; }

  void gather(std::span<const std::int64_t> indices,
              std::span<std::byte* const> out) const override {
    copy(indices, out, [&](std::int64_t sample) { return sample % apart_ * windows_.length; });
  }
  void gather_training(const DataPass& pass, std::span<const std::int64_t> indices,
                       std::span<std::byte* const> out) const override {
    const std::uint64_t key = combine_key(pass.seed, static_cast<std::uint64_t>(pass.epoch));
    copy(indices, out, [&](std::int64_t sample) {
      CounterRandom random(combine_key(key, static_cast<std::uint64_t>(sample)));
      return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(places_)));
    });
  }

 private:
  template <class F>
  void copy(std::span<const std::int64_t> indices, std::span<std::byte* const> out,
            const F& begin_of) const {
    const auto length = static_cast<std::size_t>(windows_.length);
    auto* tokens = reinterpret_cast<std::int32_t*>(out[0]);
    auto* labels = reinterpret_cast<std::int32_t*>(out[1]);
    std::vector<std::int32_t> window(length + 1);
    for (const std::int64_t sample : indices) {
      require(sample >= 0 && sample < size(), "sample ", sample, " of a dataset of ", size());
      read(begin_of(sample), window);
      tokens = std::copy_n(window.begin(), length, tokens);
      labels = std::copy_n(window.begin() + 1, length, labels);
    }
  }

  // The window at `place`, or the next one without a bad record.
  void read(std::int64_t place, std::span<std::int32_t> window) const {
    for (std::int64_t tried = 0; tried <= apart_; ++tried) {
      try {
        windows_.tokens->read(windows_.begin + place, window);
        return;
      } catch (const BadRecord& record) {
        if (!windows_.bad) throw;
        windows_.bad->note(record);
      }
      place = (place + windows_.length) % places_;
    }
    throw IoError(cat(windows_.tokens->describe(), ": no window is without a bad record"));
  }

  TokenWindows windows_;
  std::int64_t places_ = 0, apart_ = 0;  // windows at any place, and without overlap
};

}  // namespace

std::unique_ptr<Dataset> token_windows(TokenWindows windows) {
  return std::make_unique<WindowDataset>(std::move(windows));
}

namespace data {
namespace {

constexpr std::string_view kTextFile = "input.txt";

bool is_llmc(const TextOptions& options) { return options.tokens == "llmc"; }

std::vector<std::string> text_files(const TextOptions& options, const std::string& folder,
                                    bool train) {
  FileSystem& files = local_file_system();
  if (!is_llmc(options)) {
    const std::string path = cat(folder, "/", kTextFile);
    if (files.target_kind(path) == FileKind::kNone)
      throw NotFoundError(about_option("data_dir", "no such file: ", path,
                                       "; name the folder with the text (", the_option("data_dir"),
                                       ")"));
    return {path};
  }
  const char* const part = train ? "train" : "val";
  std::vector<std::string> found;
  for (const std::string& name : names_in_data_dir(files, folder))
    if (name.ends_with(".bin") && name.find(part) != std::string::npos)
      found.push_back(cat(folder, "/", name));
  if (found.empty())
    throw NotFoundError(about_option("data_dir", folder, " has no file *", part,
                                     "*.bin; name the folder with token files of llm.c (",
                                     the_option("data_dir"), ")"));
  return found;
}

// Loading reports files that are not found.
std::vector<std::string> known_text_files(const TextOptions& options, const std::string& folder,
                                          bool train) {
  try {
    return folder.empty() ? std::vector<std::string>() : text_files(options, folder, train);
  } catch (const Error&) {
    return {};
  }
}

// A row of tokens, and the bad records that were left out.
struct Text {
  explicit Text(BadRecordPolicy policy) : bad(policy) {}
  BadRecords bad;
  std::unique_ptr<TokenStream> tokens;
};

std::string whole_text(const TokenStream& tokens) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(tokens.size()));
  tokens.read(0, all);
  return tokens.vocabulary()->decode(all);
}

std::string read_all(FileSystem& files, const std::string& path) {
  const auto file = files.open(path);
  std::string text(file->size(), '\0');
  require<IoError>(file->read(std::as_writable_bytes(std::span(text))) == text.size(), path,
                   " has become shorter since it was opened");
  return text;
}

std::shared_ptr<Text> read_text(const TextOptions& options, const RunDirs& dirs, bool train) {
  constexpr std::int64_t kGenerated = 200'000;
  FileSystem& files = local_file_system();
  auto text = std::make_shared<Text>(dirs.bad_records);
  const bool encodes = options.tokens == "tokenizer";
  if (dirs.data_dir.empty()) {
    require<NotFoundError>(!is_llmc(options),
                           "token files of llm.c are not generated; name the folder with them (",
                           the_option("data_dir"), ")");
    text->tokens = generated_text(kGenerated);
    if (encodes)
      text->tokens =
          encoded_tokens(whole_text(*text->tokens), options.tokenizer, text->tokens->describe());
    return text;
  }
  std::vector<std::string> paths = text_files(options, dirs.data_dir, train);
  text->tokens = is_llmc(options)
                     ? llmc_tokens(files, std::move(paths), options.vocabulary, options.tokenizer)
                 : encodes ? encoded_tokens(read_all(files, paths[0]), options.tokenizer, paths[0])
                 : options.tokens == "bytes" ? byte_tokens(files, paths[0])
                                             : character_tokens(files, paths[0], text->bad);
  return text;
}

// The texts that data sets of one source have read. Training and tests share the row of one file:
// it is read once while either lives, and a bad record counts once.
class Texts {
 public:
  explicit Texts(TextOptions options) : options_(std::move(options)) {}
  const TextOptions& options() const { return options_; }
  std::shared_ptr<Text> get(const RunDirs& dirs, bool train) {
    if (is_llmc(options_)) return read_text(options_, dirs, train);
    const std::lock_guard lock(mutex_);
    std::weak_ptr<Text>& kept = of_one_file_[{dirs.data_dir, dirs.bad_records.most}];
    std::shared_ptr<Text> text = kept.lock();
    if (!text) kept = text = read_text(options_, dirs, train);
    return text;
  }

 private:
  const TextOptions options_;
  std::mutex mutex_;
  std::map<std::pair<std::string, std::int64_t>, std::weak_ptr<Text>> of_one_file_;
};

std::unique_ptr<Dataset> load_text(Texts& texts, const RunDirs& dirs, bool train) {
  const TextOptions& options = texts.options();
  const std::shared_ptr<Text> text = texts.get(dirs, train);
  const TokenStream& tokens = *text->tokens;
  const Vocabulary* const vocabulary = tokens.vocabulary();
  if (vocabulary && vocabulary->size() > options.vocabulary)
    refuse_option<OptionMistake>(
        "vocabulary", "=", options.vocabulary, ": ", tokens.describe(), ": the model knows ",
        options.vocabulary,
        " different tokens, and must know as many as there are: ", vocabulary->size());
  TokenWindows windows{.tokens = {text, &tokens}, .end = tokens.size(), .length = options.length};
  if (train) windows.per_epoch = options.per_epoch;
  const std::int64_t cut = tokens.size() / 10 * 9 + tokens.size() % 10 * 9 / 10;
  if (!is_llmc(options)) (train ? windows.end : windows.begin) = cut;
  // If both read one file, the training data count its bad records.
  if (train || is_llmc(options)) windows.bad = {text, &text->bad};
  return token_windows(std::move(windows));
}

}  // namespace

DatasetFactory text(TextOptions options) {
  const auto texts = std::make_shared<Texts>(std::move(options));
  return [texts](const RunDirs& dirs, bool train) -> std::unique_ptr<Dataset> {
    const TextOptions& read = texts->options();
    const auto load = [texts, dirs, train] { return load_text(*texts, dirs, train); };
    std::vector<std::string> files = known_text_files(read, dirs.data_dir, train);
    if (read.tokenizer && (!files.empty() || dirs.data_dir.empty()))
      std::ranges::copy(read.tokenizer->files(), std::back_inserter(files));
    // Text for tests is of the same file, so training's check is enough.
    const bool is_there = dirs.data_dir.empty() ? !is_llmc(read) : !files.empty();
    const bool can_check = train && is_there;
    const auto check = [load] { load(); };
    return std::make_unique<LazyDataset>(window_fields(read.length), load, std::move(files),
                                         can_check ? std::function<void()>(check) : nullptr);
  };
}

}  // namespace data
}  // namespace belfry
