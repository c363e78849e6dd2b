//! A bar for each row, with its number.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::Axis;
use super::{Area, CARD, Drawn, FAINT, INK, MARGIN, OTHERS, OURS, TITLE_HEIGHT, WIDTH, bold, text, width};
use crate::report::figure::figure;
use crate::section::{Row, Table};

const ROW: u32 = 28;
const AXIS_HEIGHT: i32 = 46;
const GAP: i32 = 8;
/// What a bar fills of its row.
const THICKNESS: f64 = 0.68;
/// Room for the number behind the longest bar, as a part of the axis.
const ROOM: f64 = 0.12;

pub fn height(table: &Table) -> u32 {
    TITLE_HEIGHT as u32 + AXIS_HEIGHT as u32 + MARGIN as u32 / 2 + ROW * table.rows.len() as u32
}

pub fn draw(area: &Area<'_>, table: &Table, column: usize, logarithmic: bool) -> Drawn {
    let number = |row: &Row| row.cells.get(column).copied().flatten();
    let numbers: Vec<f64> = table.rows.iter().filter_map(number).collect();
    let axis = Axis::new(&numbers, logarithmic).with_foot(&numbers).with_room(&numbers, ROOM);
    let start = axis.range().start;
    let longest = table.rows.iter().map(|row| width(&row.label)).max().unwrap_or_default();
    let rows = table.rows.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin_top(TITLE_HEIGHT)
        .margin_right(MARGIN)
        .margin_bottom(MARGIN / 2)
        .x_label_area_size(AXIS_HEIGHT)
        .y_label_area_size((longest + MARGIN + GAP).min(WIDTH as i32 / 2))
        .build_cartesian_2d(axis.clone(), rows..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .axis_style(FAINT)
        .bold_line_style(FAINT)
        .light_line_style(CARD)
        .label_style(text(INK))
        .axis_desc_style(text(INK))
        .x_desc(axis.title(table.headings.get(column + 1).map_or("", String::as_str)))
        .draw()?;
    for (position, row) in table.rows.iter().enumerate() {
        let (top, middle) = (position as f64 + (1.0 - THICKNESS) / 2.0, position as f64 + 0.5);
        let end = number(row).unwrap_or(start);
        let colour = if row.is_ours() { OURS } else { OTHERS };
        chart.draw_series([Rectangle::new([(start, top), (end, top + THICKNESS)], colour.filled())])?;
        let style = if row.is_ours() { bold(&text(OURS), super::TEXT_SIZE) } else { text(INK) };
        let (left, y) = chart.backend_coord(&(start, middle));
        area.draw_text(&row.label, &style.pos(Pos::new(HPos::Right, VPos::Center)), (left - GAP, y))?;
        let (right, y) = chart.backend_coord(&(end, middle));
        let shown = number(row).map_or_else(|| "–".to_owned(), figure);
        area.draw_text(&shown, &style.pos(Pos::new(HPos::Left, VPos::Center)), (right + GAP, y))?;
    }
    Ok(())
}
