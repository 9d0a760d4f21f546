"""Layer types and data sources of Caffe's forks, a folder for each family."""
