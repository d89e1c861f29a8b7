"""A live view of a scene in a web browser, rendered here; `jaxsplat.viewer.server` needs the package viser."""
