//! Plots as SVG, on a light card of their own, so that they can be read on a light page and on a dark one.

mod axis;
mod bars;
mod lines;

use std::error::Error;

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::results::Record;
use crate::section::Plot;

type Area<'p> = DrawingArea<SVGBackend<'p>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

const WIDTH: u32 = 860;
const MARGIN: i32 = 20;
/// From the top to the plot itself.
const TITLE_HEIGHT: i32 = 56;

const CARD: RGBColor = RGBColor(252, 252, 250);
const INK: RGBColor = RGBColor(36, 41, 47);
const FAINT: RGBColor = RGBColor(222, 224, 227);
/// This module, and nothing else.
const OURS: RGBColor = RGBColor(207, 34, 46);
const OTHERS: RGBColor = RGBColor(150, 163, 178);
/// Told apart by colour-blind eyes, too (Okabe and Ito).
const PALETTE: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(230, 159, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(110, 110, 110),
];

const TEXT_SIZE: i32 = 14;

pub fn file_name(record: &Record) -> String {
    format!("{}.svg", record.name)
}

/// The picture of a section, if it has one.
pub fn draw(record: &Record) -> Result<Option<String>, Box<dyn Error>> {
    let Some(plot) = &record.plot else { return Ok(None) };
    let height = match plot {
        Plot::Bars { .. } => bars::height(&record.table),
        Plot::Lines { .. } => lines::HEIGHT,
    };
    let mut picture = String::new();
    {
        let area = SVGBackend::with_string(&mut picture, (WIDTH, height)).into_drawing_area();
        area.fill(&CARD)?;
        let style = text(INK).pos(Pos::new(HPos::Left, VPos::Top));
        area.draw_text(&record.title, &bold(&style, TEXT_SIZE + 3), (MARGIN, MARGIN - 4))?;
        match plot {
            Plot::Bars { column, logarithmic } => bars::draw(&area, &record.table, *column, *logarithmic)?,
            Plot::Lines { at, x, y } => lines::draw(&area, &record.table, at, x, y)?,
        }
        area.present()?;
    }
    Ok(Some(picture))
}

/// The style of a text, which is centred about its height and begins where it is put.
fn text(colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", TEXT_SIZE).with_color(colour).into_text_style(&(0, 0)).pos(Pos::new(HPos::Left, VPos::Center))
}

fn bold(style: &TextStyle<'static>, size: i32) -> TextStyle<'static> {
    let font = ("sans-serif", size).into_font().style(FontStyle::Bold);
    TextStyle { font, ..style.clone() }
}

/// About how wide a text is. Whoever looks at the picture chooses the font, so nothing exact is known.
fn width(text: &str) -> i32 {
    text.chars().count() as i32 * TEXT_SIZE * 11 / 20
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::made_up;

    /// The pictures of made-up results. With `PLOTS=folder` they are left there to be looked at.
    #[test]
    fn each_row_has_its_label_and_each_bar_its_number() {
        let records =
            [("linear", made_up::bars(false)), ("logarithmic", made_up::bars(true)), ("lines", made_up::lines())];
        for (name, record) in records {
            let picture = draw(&record).expect("a picture that can be drawn").expect("a plot");
            if let Some(folder) = std::env::var_os("PLOTS") {
                std::fs::write(std::path::Path::new(&folder).join(name).with_extension("svg"), &picture)
                    .expect("a folder");
            }
            for row in &record.table.rows {
                assert!(picture.contains(&row.label), "{name}: {}", row.label);
            }
            let number = if name == "lines" { "10,000" } else { "0.0516" };
            assert!(picture.contains(number), "{name}: {number}");
            assert!(picture.contains(if name == "linear" { "p50, ms" } else { "(logarithmic)" }), "{name}");
        }
    }
}
