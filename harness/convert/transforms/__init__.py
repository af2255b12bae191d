"""Transforms, one file each: an artefact in, an artefact of the same kind out."""
