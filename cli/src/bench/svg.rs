//! Outcomes as an SVG picture: each tenant's device time per second, one chart per experiment.

use super::result::Outcome;
use crate::failure::Failure;
use plotters::prelude::*;

const WIDTH: u32 = 900;
const HEIGHT: u32 = 260;

/// The picture, as text.
pub(crate) fn picture(outcomes: &[Outcome]) -> Result<String, Failure> {
    let mut text = String::new();
    draw(&mut text, outcomes)
        .map_err(|error| Failure::ours(format!("cannot draw a picture: {error}")))?;
    Ok(text)
}

fn draw(text: &mut String, outcomes: &[Outcome]) -> Drawn {
    let charts = u32::try_from(outcomes.len().max(1)).unwrap_or(1);
    let picture = SVGBackend::with_string(text, (WIDTH, HEIGHT * charts)).into_drawing_area();
    picture.fill(&WHITE)?;
    let areas = picture.split_evenly((outcomes.len().max(1), 1));
    for (outcome, area) in outcomes.iter().zip(&areas) {
        chart(outcome, area)?;
    }
    Ok(picture.present()?)
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

fn chart(outcome: &Outcome, area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Drawn {
    let seconds = outcome
        .tenants
        .iter()
        .map(|row| row.seconds.len())
        .max()
        .unwrap_or(0);
    let mut chart = ChartBuilder::on(area)
        .caption(
            format!("{}: {}", outcome.title(), outcome.about),
            ("sans-serif", 16),
        )
        .margin(8)
        .x_label_area_size(30)
        .y_label_area_size(45)
        .build_cartesian_2d(0.0..seconds.max(1) as f64, 0.0..100.0)?;
    chart
        .configure_mesh()
        .x_desc("second")
        .y_desc("% of the device")
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (at, row) in outcome.tenants.iter().enumerate() {
        let colour = Palette99::pick(at).mix(1.0);
        let steps = row.seconds.iter().enumerate().flat_map(|(second, part)| {
            [
                (second as f64, part * 100.0),
                (second as f64 + 1.0, part * 100.0),
            ]
        });
        chart
            .draw_series(LineSeries::new(steps, colour.stroke_width(2)))?
            .label(row.tenant.to_string())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .draw()?;
    Ok(())
}
