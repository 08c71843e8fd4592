// SPDX-License-Identifier: Apache-2.0
//
// Renders the story as a complete LaTeX document. Text from the scene is escaped: it is displayed,
// never interpreted. The document needs no packages beyond Debian's texlive-latex-recommended.
// LuaLaTeX and XeLaTeX show the words in any script that the reader's fonts have; pdfLaTeX shows
// the code points of characters that it has no font for.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "fovea/scene.h"

#include "scene/tell/latex.h"
#include "scene/tell/story.h"
#include "scene/trace/pooled.h"
#include "text/text_width.h"

namespace fovea::scene {
namespace {

constexpr std::int64_t kLatexPictureCells = 48;
constexpr double kPictureWidth = 12.0;  // centimetres, of the cells
constexpr double kWhiteFrom = 0.6;      // the heat from which a cell's text is white

/// Classes, packages and commands; the tables and pictures use the commands.
constexpr std::string_view kPreamble = R"(\documentclass[11pt,a4paper]{article}
\usepackage{iftex}
\ifPDFTeX
  \usepackage[utf8]{inputenc}
  \IfFileExists{lmodern.sty}{\usepackage[T1]{fontenc}\usepackage{lmodern}}{}
  \usepackage{textcomp}
\else
  \usepackage{fontspec}
\fi
\usepackage[margin=2.2cm]{geometry}
\usepackage{amsmath,amssymb,booktabs,graphicx}
\usepackage[table]{xcolor}
\definecolor{heat}{RGB}{4,98,80}
\definecolor{bar}{RGB}{18,84,150}
\ProvideTextCommandDefault{\textquotedbl}{\char34 }
\setlength{\parindent}{0pt}
\setlength{\parskip}{0.5em plus 0.2em}
\setcounter{secnumdepth}{1}
% \heat{0 to 100}: the colour of a cell. \bars{left}{length}: a bar, in shares of its column.
\newcommand{\heat}[1]{\cellcolor{heat!#1}}
\newlength{\barwidth}
\setlength{\barwidth}{24mm}
\newcommand{\bars}[2]{\makebox[\barwidth][l]{\hspace*{#1\barwidth}\textcolor{bar}{\rule{#2\barwidth}{1.2ex}}}}
% A table below its caption, made smaller if it is wider than the page. Small ones are side by side.
\newsavebox{\tablebox}
\newenvironment{block}[1]{\def\blockcaption{#1}\begin{lrbox}{\tablebox}}{\end{lrbox}%
  \ifdim\wd\tablebox>\linewidth\sbox{\tablebox}{\resizebox{\linewidth}{!}{\usebox{\tablebox}}}\fi
  \ifx\blockcaption\empty
    \begin{tabular}[t]{@{}l@{}}\usebox{\tablebox}\end{tabular}%
  \else
    \begin{tabular}[t]{@{}l@{}}\textbf{\blockcaption}\\[0.4ex]\usebox{\tablebox}\end{tabular}%
  \fi
  \hspace{2em}\ignorespacesafterend}
\newenvironment{blocks}{\begin{flushleft}\lineskip=1.2em}{\end{flushleft}}
)";

/// Commands for other characters than ASCII, unless pdfLaTeX's encodings have them.
constexpr std::string_view kCharacters = R"(\ifPDFTeX
  \makeatletter
  \newcommand{\codepoint}[1]{\fbox{\tiny U+#1}}
  \newcommand{\character}[3]{\@ifundefined{u8:\detokenize{#1}}{\DeclareUnicodeCharacter{#2}{#3}}{}}
  \makeatother
)";

/// Fonts for the scripts of the words. These are common fonts; those that are missing are skipped.
constexpr std::string_view kFonts = R"(\else
  \newcommand{\fonts}{}
  \ifLuaTeX
    \newcommand{\tryfont}[2]{\IfFontExistsTF{#1}{\edef\fonts{\fonts"#1:mode=harf;script=#2;",}}{}}
  \else
    \newcommand{\tryfont}[2]{\ifx\fonts\empty\IfFontExistsTF{#1}{\setmainfont{#1}\def\fonts{#1}}{}\fi}
  \fi
  \tryfont{Noto Serif CJK SC}{hani}
  \tryfont{Noto Sans CJK SC}{hani}
  \tryfont{Noto Naskh Arabic}{arab}
  \tryfont{Noto Sans Devanagari}{dev2}
  \tryfont{FreeSerif}{arab}
  \tryfont{DejaVu Sans}{arab}
  \tryfont{Noto Emoji}{latn}
  \ifLuaTeX
    \directlua{luaotfload.add_fallback("words", {\fonts})}
    \setmainfont{Latin Modern Roman}[RawFeature={fallback=words}]
  \fi
)";

/// The order of words that are written from right to left.
constexpr std::string_view kDirection = R"(\ifLuaTeX
  \usepackage[english,bidi=basic]{babel}
\fi
)";

class LatexRenderer {
 public:
  std::string render(const Story& story) {
    addf("\\title{{{}}}\n\\author{{}}\n\\date{{}}\n\n\\begin{{document}}\n\\maketitle\n\n{}\n\n",
         latex::escape(story.title), latex::escape(story.summary));
    for (const Note& note : story.notes) add_note("", note);
    for (const Section& section : story.sections) add_section(section);
    out_ += "\\end{document}\n";
    return std::string(kPreamble) + characters() + out_;
  }

 private:
  template <class... Args>
  void addf(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
  }

  void add_section(const Section& section) {
    addf("\\section{{{}}}\n", latex::escape(section.title));
    if (!section.formulas.empty()) {
      out_ += "\\begin{gather*}\n";
      for (std::size_t i = 0; i < section.formulas.size(); ++i) {
        addf("{}{}", i == 0 ? "" : " \\\\\n", latex::math(section.formulas[i]));
      }
      out_ += "\n\\end{gather*}\n";
    }
    addf("{}\n\n", latex::escape(section.reading));
    if (!section.blocks.empty()) out_ += "\\begin{blocks}\n";
    for (const auto& block : section.blocks) {
      if (const auto* table = std::get_if<Table>(&block)) {
        add_table(*table);
      } else {
        add_picture(std::get<Picture>(block));
      }
    }
    if (!section.blocks.empty()) out_ += "\\end{blocks}\n\n";
    if (!section.remarks.empty()) {
      out_ += "\\begin{itemize}\n";
      for (const std::string& remark : section.remarks) {
        addf("\\item {}\n", latex::escape(remark));
      }
      out_ += "\\end{itemize}\n\n";
    }
    for (const Note& note : section.notes) {
      out_ += "\\begin{quote}\n";
      add_note("\\emph{Note:} ", note);
      out_ += "\\end{quote}\n\n";
    }
  }

  /// Adds the lines of a note, with line breaks. Empty lines separate paragraphs.
  void add_note(std::string_view title, const Note& note) {
    out_ += title;
    for (std::size_t i = 0; i < note.size(); ++i) {
      const bool breaks = !note[i].empty() && i + 1 < note.size() && !note[i + 1].empty();
      addf("{}{}\n", latex::escape(note[i]), breaks ? "\\newline" : "");
    }
    out_ += '\n';
  }

  static std::string caption_text(std::string_view caption) {
    // The names of the projections begin with their symbols.
    const bool symbol = caption.starts_with("W_") && caption.size() > 2;
    return (symbol ? fmt::format("$W_{}$", caption[2]) : "") +
           latex::escape(symbol ? caption.substr(3) : caption);
  }

  // ---- Tables ----------------------------------------------------------------------------------

  static std::string cell(std::string_view text) {
    const auto first = text.find_first_not_of(' ');
    if (first == std::string_view::npos) return "";
    text = text.substr(first, text.find_last_not_of(' ') - first + 1);
    const std::string number = latex::number(text);
    return number.empty() ? latex::escape(text) : fmt::format("${}$", number);
  }

  /// Returns the number of parts of the sums in a column, each of which is a column in LaTeX.
  static std::size_t part_count(const Table& table, std::size_t column) {
    std::size_t most = 0;
    for (const TableRow& row : table.rows) {
      if (column < row.cells.size()) most = std::max(most, row.cells[column].parts.size());
    }
    return most;
  }

  /// Returns the cells of a sum. A negative number is in parentheses after a sign.
  static std::string sum_cells(const std::vector<std::string>& parts, std::size_t count) {
    std::string out;
    for (std::size_t i = 0; i < count; ++i) {
      const std::string part = i < parts.size() ? parts[i] : "";
      const std::string before = i > 0 && i <= parts.size() ? parts[i - 1] : "";
      out += " & ";
      if (part == "*") {
        out += "$\\cdot$";
      } else if (part == "+" || part == "=" || part == "[" || part == "]") {
        out += fmt::format("${}$", part);
      } else if ((before == "*" || before == "+") && part.starts_with('-')) {
        out += fmt::format("$({})$", latex::number(part));
      } else {
        out += cell(part);
      }
    }
    return out;
  }

  static std::string table_cell(const Cell& cell_of) {
    std::string out;
    if (std::isfinite(cell_of.heat) && cell_of.heat > 0.0) {
      const double heat = std::min(cell_of.heat, 1.0);
      out += fmt::format("\\heat{{{:.0f}}}", 100.0 * heat);
      if (heat >= kWhiteFrom) out += "\\color{white}";
    }
    if (cell_of.bar) {
      return out + fmt::format("\\bars{{{:.3f}}}{{{:.3f}}}", cell_of.bar->first,
                               cell_of.bar->second - cell_of.bar->first);
    }
    return out + cell(cell_of.text);
  }

  /// Returns whether the parts at a position of a column's sums are numbers, not signs.
  static bool are_numbers(const Table& table, std::size_t column, std::size_t part) {
    return std::ranges::any_of(table.rows, [&](const TableRow& row) {
      return column < row.cells.size() && part < row.cells[column].parts.size() &&
             !latex::number(row.cells[column].parts[part]).empty();
    });
  }

  /// Returns the format of a column. The numbers of a row of numbers are wider apart.
  static std::string column_format(const Table& table, std::size_t column) {
    std::string format;
    bool number_before = false;
    for (std::size_t i = 0; i < part_count(table, column); ++i) {
      const bool numbers = are_numbers(table, column, i);
      format += i == 0 ? "r" : numbers && number_before ? "@{\\enspace}r" : "@{\\,}r";
      number_before = numbers;
    }
    return !format.empty() ? format : table.columns[column].left ? "l" : "r";
  }

  void add_table(const Table& table) {
    const bool remarks =
        std::ranges::any_of(table.rows, [](const TableRow& row) { return !row.remark.empty(); });
    std::string format = "l";
    std::string header;
    bool has_header = false;
    for (std::size_t j = 0; j < table.columns.size(); ++j) {
      const Column& column = table.columns[j];
      const std::size_t parts = part_count(table, j);
      format += column_format(table, j);
      header += fmt::format(" & \\multicolumn{{{}}}{{{}}}{{{}}}", std::max<std::size_t>(parts, 1),
                            column.left ? 'l' : 'r', cell(column.header));
      has_header = has_header || !column.header.empty();
    }
    if (remarks) format += 'l';
    addf("\\begin{{block}}{{{}}}\n\\begin{{tabular}}{{{}}}\n\\toprule\n",
         caption_text(table.caption), format);
    if (has_header) addf("{} \\\\\n\\midrule\n", header.substr(1));
    for (const TableRow& row : table.rows) {
      const std::string label = latex::escape(row.label);
      out_ += row.focus && !label.empty() ? fmt::format("\\textbf{{{}}}", label) : label;
      for (std::size_t j = 0; j < table.columns.size(); ++j) {
        const std::size_t parts = part_count(table, j);
        const Cell none;
        const Cell& one = j < row.cells.size() ? row.cells[j] : none;
        out_ += parts > 0 ? sum_cells(one.parts, parts) : " & " + table_cell(one);
      }
      if (!row.remark.empty()) addf(" & \\emph{{{}}}", latex::escape(row.remark));
      out_ += " \\\\\n";
    }
    out_ += "\\bottomrule\n\\end{tabular}\n\\end{block}\n";
  }

  // ---- Pictures --------------------------------------------------------------------------------

  void add_picture(const Picture& picture) {
    const Tensor cells = pooled_mean(picture.weights, kLatexPictureCells, kLatexPictureCells);
    const std::int64_t rows = cells.extent(0);
    const std::int64_t columns = cells.extent(1);
    const std::int64_t height = picture.weights.extent(0);
    double hottest = 0.0;
    for (const double value : cells.span<double>()) {
      if (std::isfinite(value)) hottest = std::max(hottest, value);
    }
    const std::string caption =
        fmt::format("{} ({} x {}, as {} x {} cells, each a mean; darkest: {:.2g})", picture.caption,
                    height, picture.weights.extent(1), rows, columns, hottest);
    const double size = kPictureWidth / static_cast<double>(std::max(rows, columns));
    addf(
        "\\begin{{block}}{{{}}}\n\\setlength{{\\unitlength}}{{{:.4f}cm}}\\tiny\n"
        "\\hspace*{{2.5cm}}\\begin{{picture}}({},{})\n",
        caption_text(caption), size, columns, rows);
    for (std::int64_t i = 0; i < rows; ++i) {
      addf("\\put(-0.3,{}.2){{\\makebox(0,0)[br]{{{}}}}}\n", rows - 1 - i,
           latex::escape(fit(picture.labels[static_cast<std::size_t>(i * height / rows)], 18)));
      for (std::int64_t j = 0; j < columns; ++j) {
        const double value = cells.at<double>({i, j});
        const int heat =
            std::isfinite(value) && hottest > 0 ? static_cast<int>(100.0 * value / hottest) : 0;
        if (heat <= 0) continue;
        addf("\\put({},{}){{\\textcolor{{heat!{}}}{{\\rule{{\\unitlength}}{{\\unitlength}}}}}}\n",
             j, rows - 1 - i, heat);
      }
    }
    addf("\\put(0,0){{\\framebox({},{}){{}}}}\n\\end{{picture}}\n\\end{{block}}\n", columns, rows);
  }

  // ---- Characters ------------------------------------------------------------------------------

  /// Returns the declarations of the characters that are not ASCII, and of fonts for scripts other
  /// than Latin.
  std::string characters() const {
    static constexpr std::pair<std::string_view, std::string_view> kKnown[] = {
        {"\u2212", "\\ensuremath{-}"},
        {"\u2192", "\\ensuremath{\\to}"},
        {"\u221E", "\\ensuremath{\\infty}"},
        {"\u2264", "\\ensuremath{\\le}"},
        {"\u2265", "\\ensuremath{\\ge}"},
        {"\u00D7", "\\ensuremath{\\times}"},
        {"\u2026", "\\dots{}"},
        {"\u00B7", "\\ensuremath{\\cdot}"},
    };
    std::set<std::string_view> used;
    for (const std::string_view one : code_points(out_)) {
      if (one.size() > 1) used.insert(one);
    }
    if (used.empty()) return "";
    std::string out(kCharacters);
    bool other_scripts = false;
    for (const std::string_view one : used) {
      const auto* const known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                             [&](const auto& entry) { return entry.first == one; });
      const std::string hex = fmt::format("{:04X}", code_point(one));
      const bool is_known = known != std::end(kKnown);
      out += fmt::format(
          "  \\character{{{}}}{{{}}}{{{}}}\n", one, hex,
          is_known ? std::string(known->second) : fmt::format("\\codepoint{{{}}}", hex));
      other_scripts = other_scripts || (!is_known && code_point(one) > kLastLatin);
    }
    if (other_scripts) out += kFonts;
    out += "\\fi\n";
    if (std::ranges::any_of(used, is_right_to_left)) out += kDirection;
    return out;
  }

  static constexpr std::uint32_t kLastLatin = 0x24F;

  /// Returns whether a character is of a script that is written from right to left.
  static bool is_right_to_left(std::string_view character) {
    const std::uint32_t code = code_point(character);
    return (code >= 0x590 && code <= 0x8FF) || (code >= 0xFB1D && code <= 0xFDFF) ||
           (code >= 0xFE70 && code <= 0xFEFF);
  }

  /// Returns the number of a character in valid UTF-8.
  static std::uint32_t code_point(std::string_view character) {
    const auto lead = static_cast<unsigned char>(character[0]);
    std::uint32_t result = lead & (character.size() == 2   ? 0x1Fu
                                   : character.size() == 3 ? 0x0Fu
                                                           : 0x07u);
    for (const char next : character.substr(1)) {
      result = (result << 6) | (static_cast<unsigned char>(next) & 0x3Fu);
    }
    return result;
  }

  std::string out_;
};

}  // namespace

std::string to_latex(const Trace& trace) { return LatexRenderer().render(tell_story(trace)); }

}  // namespace fovea::scene
