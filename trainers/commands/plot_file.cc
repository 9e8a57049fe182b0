#include "belfry/trainers/commands/plot_file.h"

#include <algorithm>
#include <array>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/commands/child_process.h"

namespace belfry {
namespace {

constexpr std::array<std::string_view, 3> kPictures = {".svg", ".png", ".pdf"};

std::string picture_ending(const std::string& path) {
  const auto found = std::ranges::find_if(
      kPictures, [&](std::string_view ending) { return path.ends_with(ending); });
  return found == kPictures.end() ? "" : std::string(*found);
}

// The command that chooses the format.
std::string terminal(const std::string& ending, int width, int height) {
  constexpr double kPixelsPerInch = 100;
  const std::string look = " noenhanced font 'Helvetica,12'";
  if (ending == ".png") return cat("set terminal pngcairo", look, " size ", width, ",", height);
  if (ending == ".pdf")
    return cat("set terminal pdfcairo", look, " size ", width / kPixelsPerInch, "in,",
               height / kPixelsPerInch, "in");
  return cat("set terminal svg", look, " size ", width, ",", height, " background rgb 'white'");
}

// gnuplot quotes the command first, and then says what is wrong.
std::string last_line(const std::string& errors) {
  const std::size_t end = errors.find_last_not_of(" \n") + 1;
  const std::size_t before = errors.rfind('\n', end);
  return shown(errors.substr(before == errors.npos ? 0 : before + 1, end), 400);
}

}  // namespace

PlotFile::PlotFile(OutputFiles& outputs, std::string_view flag, const std::string& path)
    : script_path_(path), ending_(picture_ending(path)) {
  if (!ending_.empty()) {
    picture_ = outputs.open(flag, path);
    script_path_ = cat(path.substr(0, path.size() - ending_.size()), ".gp");
  }
  script_ = outputs.open(flag, script_path_);
}

void PlotFile::draw(const std::string& commands, int width, int height) {
  const std::string ending = ending_.empty() ? ".svg" : ending_;
  script_->write(cat("# gnuplot ", picture_ ? script_path_ : "FILE.gp", " > plot", ending, "\n",
                     terminal(ending, width, height), "\nset encoding utf8\n", commands));
  if (!picture_ || !script_->failure().empty()) return;
  ChildResult drawn;
  try {
    drawn = run_to_end({.arguments = {"gnuplot", script_path_}});
  } catch (const IoError& error) {
    throw IoError(cat(error.what(), "; install gnuplot (Debian: gnuplot-nox), or draw ",
                      script_path_, " where it is"));
  }
  require<IoError>(drawn.end.code == 0 && !drawn.output.empty(), "gnuplot cannot draw ",
                   script_path_, ": ", last_line(drawn.errors));
  picture_->write(drawn.output);
}

}  // namespace belfry
