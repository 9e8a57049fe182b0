// The output for people while a program trains, on terminals of any width and elsewhere.
#include "belfry/trainers/callbacks/progress.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"
#include "belfry/tests/trainers/program/train_support.h"
#include "belfry/tests/trainers/util/fake_console.h"
#include "belfry/trainers/callbacks/evaluation.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/core/trainer_kinds.h"

namespace belfry {
namespace progress_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Progress of a trainer with several metrics. It is told of steps that need not happen.
class ProgressTest : public testing::Test {
 protected:
  ProgressTest() {
    TrainerOptions options{.model =
                               [](Tower& tower, Output x, Output y) {
                                 tower.metric("accuracy", reduce_mean(x));
                                 return smooth_model(tower, x, y);
                               },
                           .optimizer = sgd(0.1),
                           .batch_size = 4,
                           .epochs = 10};
    trainer_ = std::make_unique<Trainer>(find_trainer("simple"), std::move(options), *data_);
  }

  void open(bool terminal) {
    fake_.emplace(terminal);
    progress_.emplace(fake_->console);
    progress_->setup(*trainer_);
  }
  // Makes a step of `seconds`, `between` seconds after the one before.
  void step(double seconds, double between = 0) {
    fake_->now += between;
    progress_->before_step(*trainer_, info());
    fake_->now += seconds;
    progress_->after_step(*trainer_, info());
    if (++done_ % 100 == 0)
      progress_->after_epoch(*trainer_,
                             {done_, 100, static_cast<int>(done_ / 100) - 1, fake_->now});
  }
  StepInfo info() const { return {done_, 100, static_cast<int>(done_ / 100), fake_->now}; }

  // The status line on the screen.
  std::string status() {
    const std::string text = fake_->printed();
    const std::size_t begin = text.rfind("\r\x1b[K");
    return begin == text.npos ? "" : text.substr(begin + 4);
  }

  std::optional<FakeConsole> fake_;
  std::int64_t done_ = 0;

 private:
  std::unique_ptr<Dataset> data_ = smooth_data(400);  // 100 steps an epoch, 1000 in all
  std::unique_ptr<Trainer> trainer_;
  std::optional<Progress> progress_;
};

TEST_F(ProgressTest, FitsTheWidthOfTheTerminalAndItsChanges) {
  open(true);
  step(0.5);
  step(0.5);
  fake_->printed();
  const std::pair<int, const char*> widths[] = {
      {200,
       "step 3/1000  epoch 1/10  loss nan  accuracy nan  mean_x nan  8 examples/s (8 per "
       "device)  8:19 left"},
      {80, "step 4/1000  epoch 1/10  loss nan  accuracy nan  mean_x nan  8 ex/s  8:18 left"},
      {60, "step 5/1000  loss nan  accuracy nan  8 ex/s  8:18 left"},
      {40, "step 6/1000  loss nan  8:17 left"},
      {20, "step 7/1000"},
      {8, "step 8/"},
      {1, ""},
      {200,
       "step 10/1000  epoch 1/10  loss nan  accuracy nan  mean_x nan  8 examples/s (8 per "
       "device)  8:15 left"}};
  for (const auto& [columns, line] : widths) {
    fake_->columns = columns;
    step(0.5);
    const std::string shown = status();
    EXPECT_EQ(shown, line) << columns;
    EXPECT_LT(shown.size(), static_cast<std::size_t>(columns));
  }
}

TEST_F(ProgressTest, DoesNotComeBackToWhatGaveWayAtThisWidth) {
  open(true);
  fake_->columns = 75;
  step(0.5);
  EXPECT_THAT(status(), HasSubstr("epoch"));
  step(0.5);
  EXPECT_THAT(status(), Not(HasSubstr("epoch"))) << "as there is a speed now";
  for (int i = 0; i < 998; ++i) step(0.5);
  EXPECT_THAT(status(), testing::StartsWith("step 1000/1000  loss")) << "though no time is left";
}

TEST_F(ProgressTest, UpdatesTheStatusLineTenTimesASecondAtMost) {
  open(true);
  for (int i = 0; i < 900; ++i) step(1.0 / 64);  // 7 of them take more than 0.1 s
  const std::string text = fake_->printed();
  EXPECT_EQ(std::ranges::count(text, '\r'), 129);
  EXPECT_EQ(std::ranges::count(text, '\n'), 0);
}

// The numbers of the steps that have a line.
std::vector<int> steps_in(const std::string& text) {
  std::vector<int> steps;
  for (const std::string_view line : split(text, '\n'))
    if (line.starts_with("step ")) steps.push_back(std::atoi(line.data() + 5));
  return steps;
}

TEST_F(ProgressTest, PrintsALineForTheFirstStepAndForTheEndOfEachEpoch) {
  open(false);
  for (int i = 0; i < 300; ++i) step(0.01);
  const std::string text = fake_->printed();
  EXPECT_THAT(steps_in(text), ElementsAre(1, 100, 200, 300));
  EXPECT_EQ(text.find('\r'), text.npos);
  EXPECT_THAT(text, HasSubstr("400 examples/s (400 per device)")) << text;
}

TEST_F(ProgressTest, PrintsALineAtLeastEveryTenSeconds) {
  open(false);
  for (int i = 0; i < 20; ++i) step(3);
  EXPECT_THAT(steps_in(fake_->printed()), ElementsAre(1, 4, 7, 10, 13, 16, 19))
      << "9 s apart, not 12";
  step(25);
  step(25);
  EXPECT_THAT(steps_in(fake_->printed()), ElementsAre(21, 22));
  step(0.1);
  step(0.1, /*between=*/60);  // e.g. for an evaluation
  EXPECT_THAT(steps_in(fake_->printed()), ElementsAre(24));
}

TEST_F(ProgressTest, CountsWhatHappensBetweenStepsToTheTimeThatIsLeft) {
  open(false);
  step(100);  // the first is not typical
  step(1, 1);
  step(1, 1);
  for (int i = 3; i < 100; ++i) step(1, 1);
  EXPECT_THAT(fake_->printed(),
              HasSubstr("step 100/1000  epoch 1/10  loss nan  accuracy nan  mean_x nan  "
                        "4 examples/s (4 per device)  30:00 left"));
}

TEST_F(ProgressTest, LeavesALineForAnEvaluationThatTakesLong) {
  const auto train = smooth_data(8), test = smooth_data(41);
  for (const bool terminal : {false, true}) {
    FakeConsole fake(terminal, /*per_look=*/4);  // so every second batch has a line
    TrainerOptions options{.model = smooth_model,
                           .optimizer = sgd(0.1),
                           .batch_size = 4,
                           .epochs = 1,
                           .callbacks = {std::make_shared<Evaluation>(fake.console)}};
    Trainer trainer(find_trainer("simple"), std::move(options), *train, test.get());
    trainer.train();
    const std::string text = fake.printed();
    const std::string all = terminal ? "\r\x1b[Kepoch 1, step 2: tested 4/41\r\x1b[K"
                                     : "epoch 1, step 2: tested 8/41\n";
    EXPECT_THAT(text, testing::StartsWith(all));
    EXPECT_THAT(text, HasSubstr("epoch 1, step 2: tested 40/41"));
    EXPECT_EQ(std::ranges::count(text, '\n'), terminal ? 1 : 6) << text;
    EXPECT_THAT(text, HasSubstr("epoch 1, step 2: test  loss "));
  }
}

// The times of the lines of work that has such parts.
std::vector<double> lines_at(FakeConsole& fake, std::span<const double> parts) {
  std::vector<double> at;
  for (const double part : parts) {
    fake.now += part;
    if (!fake.console.due()) continue;
    at.push_back(fake.now);
    fake.console.show("so far");
  }
  return at;
}

TEST(Console, HasALineDueBeforeTenSecondsPassWithoutOne) {
  FakeConsole fake;
  EXPECT_THAT(lines_at(fake, std::vector<double>(12, 3)), ElementsAre(9, 18, 27, 36));
  EXPECT_EQ(fake.printed(), "so far\nso far\nso far\nso far\n");
  EXPECT_THAT(lines_at(fake, std::vector<double>{25, 25}), ElementsAre(61, 86));
  fake.now = 94;
  fake.console.line("another");
  EXPECT_THAT(lines_at(fake, std::vector<double>{3, 3, 3}), ElementsAre(103))
      << "it counts as a line";
}

TEST(Console, HasItsStatusLineDueTenTimesASecondWithinItsWidth) {
  FakeConsole fake(true);
  fake.columns = 4;
  EXPECT_THAT(lines_at(fake, std::vector<double>(8, 0.0625)), ElementsAre(0.125, 0.25, 0.375, 0.5));
  EXPECT_EQ(fake.printed(), "\r\x1b[Kso \r\x1b[Kso \r\x1b[Kso \r\x1b[Kso ");
}

TEST(Console, IsAskedForNothingWhereThereIsNone) { show_if_due(nullptr, "step ", 1); }

TEST(Console, AsksTheTerminalForItsWidthEachTime) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0) GTEST_SKIP() << "no pseudo-terminal: " << std::strerror(errno);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  std::FILE* const stream = std::fopen(ptsname(terminal), "w");
  ASSERT_NE(stream, nullptr);
  const auto set_columns = [&](unsigned short columns) {
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);
  };
  setenv("TERM", "xterm", 1);
  {
    Console console(stream);
    EXPECT_TRUE(console.has_status());
    for (const unsigned short columns : {40, 200, 80}) {
      set_columns(columns);
      EXPECT_EQ(console.status_columns(), columns - 1u);
    }
    set_columns(0);  // not known
    setenv("COLUMNS", "123", 1);
    EXPECT_EQ(console.status_columns(), 122u);
    for (const char* nothing : {"", "wide", "-4", "0"}) {
      setenv("COLUMNS", nothing, 1);
      EXPECT_EQ(console.status_columns(), 79u) << nothing;
    }
    unsetenv("COLUMNS");
    EXPECT_EQ(console.status_columns(), 79u);
    set_columns(8);
    console.status("0123456789");
    console.line("a line");
    std::string text;
    for (char c = 0; c != '\n' && read(terminal, &c, 1) == 1;) text += c;
    // The terminal adds the last carriage return.
    EXPECT_EQ(text, "\r\x1b[K0123456\r\x1b[Ka line\r\n");
  }
  for (const char* term : {"dumb", ""}) {
    setenv("TERM", term, 1);
    EXPECT_FALSE(Console(stream).has_status()) << term;
  }
  std::fclose(stream);
  close(terminal);
}

TEST(Console, WithoutAStreamCopiesItsLinesAlone) {
  Console console(nullptr);
  std::string copied;
  console.copy_to([&](std::string_view text) { copied += text; });
  testing::internal::CaptureStdout();
  console.line("step 1/2");
  console.status("step 2/2");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(copied, "step 1/2");
}

TEST(Console, TakesItsStatusLineAwayBeforeALineOfTheLog) {
  std::FILE* const file = std::tmpfile();
  {
    Console console(file, {.rewrites = true, .columns = [] { return 80; }});
    console.status("step 1/2");
    testing::internal::CaptureStderr();
    log_warning("the loss is nan");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "W the loss is nan\n");
    char text[100] = "";
    std::rewind(file);
    EXPECT_EQ(std::string(text, std::fread(text, 1, sizeof text, file)),
              "\r\x1b[Kstep 1/2\r\x1b[K");
  }
  std::fclose(file);
}

TEST(Console, HasNoStatusLineInAFile) {
  std::FILE* const file = std::tmpfile();
  Console console(file);
  EXPECT_FALSE(console.has_status());
  console.status("nothing");
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
}

TEST(Console, CutsTextBetweenCharacters) {
  EXPECT_EQ(columns_of("loss"), 4u);
  EXPECT_EQ(columns_of("Verlust größe"), 15u) << "some characters are wide";
  EXPECT_EQ(fitting("größe", 2), "gr");
  EXPECT_EQ(fitting("größe", 3), "gr");
  EXPECT_EQ(fitting("größe", 4), "grö");
  EXPECT_EQ(fitting("loss", 9), "loss");
}

TEST(Train, WritesNoCarriageReturnsToFilesAndSaysHowMuchTimeIsLeft) {
  const TrainResult result = run_train({"--devices=cpu:1"});
  EXPECT_EQ(result.out.find('\r'), result.out.npos);
  EXPECT_THAT(steps_in(result.out), ElementsAre(1, 8, 16));
  EXPECT_THAT(result.out, HasSubstr("per device)  0:00 left\n"));
}

}  // namespace progress_test
}  // namespace belfry
