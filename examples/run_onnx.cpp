// Run an ONNX file that `caffejax export` wrote on a picture, with OpenCV alone: see docs/opencv_models.md.
//
//     c++ -std=c++17 run_onnx.cpp -o run_onnx $(pkg-config --cflags --libs opencv4)
//     ./run_onnx net.onnx picture.png WIDTH HEIGHT SCALE MEAN...
//
// MEAN is three numbers, for blue, green and red, or one number, for a gray picture. What blobFromImage gets from them
// is in the table of that page. Printed are the shape of the output and its largest number with its index, or, where
// rows have seven numbers, the detections above 0.5: label, confidence, left, top, right, bottom in pixels.

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <opencv2/dnn.hpp>
#include <opencv2/imgcodecs.hpp>

int main(int argc, char **argv) {
    if (argc != 7 && argc != 9) {
        std::cerr << "usage: run_onnx NET.onnx PICTURE WIDTH HEIGHT SCALE MEAN...\n";
        return 2;
    }
    const cv::Mat image = cv::imread(argv[2], argc == 9 ? cv::IMREAD_COLOR : cv::IMREAD_GRAYSCALE);
    if (image.empty()) {
        std::cerr << argv[2] << ": no such picture\n";
        return 1;
    }
    cv::Scalar mean;
    for (int channel = 0; channel < argc - 6; ++channel) mean[channel] = std::atof(argv[6 + channel]);
    const cv::Size size(std::atoi(argv[3]), std::atoi(argv[4]));

    cv::dnn::Net net = cv::dnn::readNetFromONNX(argv[1]);
    net.setInput(cv::dnn::blobFromImage(image, std::atof(argv[5]), size, mean));
    const cv::Mat output = net.forward();

    std::cout << "shape";
    for (int axis = 0; axis < output.dims; ++axis) std::cout << ' ' << output.size[axis];
    std::cout << '\n';
    const float *numbers = output.ptr<float>();
    if (output.dims == 4 && output.size[3] == 7) {
        for (const float *row = numbers; row != numbers + output.total(); row += 7)
            if (row[2] > 0.5)
                std::cout << row[1] << ' ' << row[2] << ' ' << row[3] * image.cols << ' ' << row[4] * image.rows << ' '
                          << row[5] * image.cols << ' ' << row[6] * image.rows << '\n';
    } else {
        const float *largest = std::max_element(numbers, numbers + output.total());
        std::cout << "largest " << *largest << " at " << largest - numbers << '\n';
    }
}
