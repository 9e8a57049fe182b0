// Files that plots are written to.
#pragma once
#include <string>
#include <string_view>

#include "belfry/trainers/util/output_file.h"

namespace belfry {

// Opens the files of a plot before there is anything to draw. gnuplot draws FILE.svg, FILE.png and
// FILE.pdf from the script FILE.gp, which stays next to the picture. Any other path is that of the
// script, and nothing is drawn.
class PlotFile {
 public:
  // Throws FlagError as OutputFiles::open() does. `outputs` must outlive it.
  PlotFile(OutputFiles& outputs, std::string_view flag, const std::string& path);

  // Writes the script and the picture. `commands` are the data and commands of gnuplot, without the
  // terminal; `width` and `height` are in pixels. Throws IoError if gnuplot is not there or fails;
  // the script is then complete.
  void draw(const std::string& commands, int width, int height);

 private:
  std::string script_path_;
  std::string ending_;  // of the picture; "" for none
  OutputFile* picture_ = nullptr;
  OutputFile* script_ = nullptr;
};

}  // namespace belfry
