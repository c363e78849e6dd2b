//! A line for each row, with its label at its end.

use plotters::prelude::*;

use super::axis::Axis;
use super::{Area, CARD, Drawn, FAINT, INK, MARGIN, OURS, PALETTE, TEXT_SIZE, TITLE_HEIGHT, bold, text, width};
use crate::section::{Row, Table};

pub const HEIGHT: u32 = 440;
const LABELS: i32 = 48;
/// Between the end of a line and its label.
const GAP: i32 = 26;
/// Between the labels of two lines.
const SPACING: i32 = TEXT_SIZE + 4;

/// What is written at the end of a line, and where the line ends.
struct Ending<'t> {
    end: (i32, i32),
    label: &'t str,
    style: TextStyle<'static>,
    colour: RGBColor,
}

pub fn draw(area: &Area<'_>, table: &Table, at: &[f64], x_title: &str, y_title: &str) -> Drawn {
    let numbers: Vec<f64> = table.rows.iter().flat_map(|row| row.cells.iter().copied().flatten()).collect();
    let (x, y) = (Axis::at(at), Axis::fitting(&numbers));
    let longest = table.rows.iter().map(|row| width(&row.label)).max().unwrap_or_default();
    let mut chart = ChartBuilder::on(area)
        .margin_top(TITLE_HEIGHT)
        .margin_right(GAP + longest + MARGIN)
        .margin_bottom(MARGIN / 2)
        .margin_left(MARGIN / 2)
        .x_label_area_size(LABELS)
        .y_label_area_size(LABELS + MARGIN * 3 / 2)
        .build_cartesian_2d(x.clone(), y.clone())?;
    chart
        .configure_mesh()
        .axis_style(FAINT)
        .bold_line_style(FAINT)
        .light_line_style(CARD)
        .label_style(text(INK))
        .axis_desc_style(text(INK))
        .x_desc(x.title(x_title))
        .y_desc(y.title(y_title))
        .draw()?;
    let mut others = PALETTE.into_iter().cycle();
    let colours: Vec<_> = table.rows.iter().map(|row| if row.is_ours() { Some(OURS) } else { others.next() }).collect();
    let mut endings = Vec::new();
    // This module last, on top of the others.
    let mut rows: Vec<(&Row, RGBColor)> = table.rows.iter().zip(colours.into_iter().flatten()).collect();
    rows.sort_by_key(|(row, _)| row.is_ours());
    for (row, colour) in rows {
        let points = at.iter().zip(&row.cells).filter_map(|(&at, cell)| cell.map(|number| (at, number)));
        let points: Vec<_> = points.collect();
        let Some(last) = points.last() else { continue };
        let ours = row.is_ours();
        let style = if ours { bold(&text(colour), TEXT_SIZE) } else { text(INK) };
        endings.push(Ending { end: chart.backend_coord(last), label: &row.label, style, colour });
        let size = if ours { 4 } else { 3 };
        chart.draw_series(points.iter().map(|&point| Circle::new(point, size, colour.filled())))?;
        chart.draw_series([PathElement::new(points, colour.stroke_width(if ours { 3 } else { 2 }))])?;
    }
    let right = chart.plotting_area().get_pixel_range().0.end;
    write_labels(area, endings, right)
}

/// Writes the labels to the right of the plot, each as near to its line's end as the others let it.
fn write_labels(area: &Area<'_>, mut endings: Vec<Ending<'_>>, right: i32) -> Drawn {
    endings.sort_by_key(|ending| ending.end.1);
    let ends: Vec<i32> = endings.iter().map(|ending| ending.end.1).collect();
    let lowest = HEIGHT as i32 - LABELS - MARGIN / 2;
    for (ending, y) in endings.iter().zip(spread(&ends, lowest)) {
        let leader = vec![ending.end, (right + GAP - 4, y)];
        area.draw(&PathElement::new(leader, ending.colour))?;
        area.draw_text(ending.label, &ending.style, (right + GAP, y))?;
    }
    Ok(())
}

/// Moves heights, which rise, apart: first down, and then up again from the lowest that there may be.
fn spread(heights: &[i32], lowest: i32) -> Vec<i32> {
    let mut spread = heights.to_vec();
    for next in 1..spread.len() {
        spread[next] = spread[next].max(spread[next - 1] + SPACING);
    }
    let mut limit = lowest;
    for height in spread.iter_mut().rev() {
        *height = (*height).min(limit);
        limit = *height - SPACING;
    }
    spread
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_would_overlap_are_moved_apart() {
        assert_eq!(spread(&[10, 100], 300), [10, 100]);
        assert_eq!(spread(&[10, 10, 100], 300), [10, 10 + SPACING, 100]);
        assert_eq!(spread(&[10, 299, 300], 300), [10, 300 - SPACING, 300]);
        assert_eq!(spread(&[], 300), Vec::<i32>::new());
    }
}
