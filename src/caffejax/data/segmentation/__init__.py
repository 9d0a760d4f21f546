"""Images with a label for each pixel, as several forks read them from lists of image files."""
