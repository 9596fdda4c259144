//! Drawings of graphs in the language DOT.

use std::fmt::Write as _;

use super::node::NodeWork;
use super::store::{GraphId, Store};
use crate::error::Result;
use crate::handle;

impl Store {
    /// A drawing of a graph and of its child graphs: each node's number and type.
    ///
    /// # Errors
    /// `INVALID_VALUE` if `graph` names no graph.
    pub fn dot(&self, graph: GraphId) -> Result<String> {
        let mut text = String::from("digraph dot {\n");
        self.draw(graph, &mut text)?;
        text.push_str("}\n");
        Ok(text)
    }

    fn draw(&self, graph: GraphId, text: &mut String) -> Result {
        let name = format!("graph_{}", handle::number(graph));
        let mut line = |line: String| {
            let _ = writeln!(text, "{line}");
        };
        line(format!(
            "subgraph cluster_{name} {{\nlabel=\"{name}\" graph[style=\"dashed\"];"
        ));
        let (mut children, graph) = (Vec::new(), self.graph(graph)?);
        for (id, node) in graph.nodes() {
            let number = handle::number(id);
            let kind = node.work.kind();
            line(format!(
                "\"{name}_node_{number}\"[shape=\"record\" label=\"{number}\\n{kind:?}\"];"
            ));
            if let NodeWork::Child(child) = node.work {
                children.push(child);
            }
        }
        for edge in graph.edges() {
            let (from, to) = (handle::number(edge.from), handle::number(edge.to));
            line(format!("\"{name}_node_{from}\" -> \"{name}_node_{to}\";"));
        }
        line("}".to_owned());
        children
            .into_iter()
            .try_for_each(|child| self.draw(child, text))
    }
}
