# Writes a source with the texts of trainers/names/*.names, so that programs have them wherever they are.
file(GLOB name_files CONFIGURE_DEPENDS trainers/names/*.names)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${name_files})
set(texts)
foreach(file ${name_files})
  get_filename_component(name ${file} NAME_WLE)
  file(READ ${file} text)
  string(APPEND texts "    {\"${name}\", R\"names(${text})names\"},\n")
endforeach()
set(name_texts ${CMAKE_BINARY_DIR}/generated/name_texts.cc)
file(CONFIGURE OUTPUT ${name_texts} @ONLY CONTENT
"// Generated from trainers/names/*.names.
#include \"belfry/trainers/names/name_texts_impl.h\"

namespace belfry {

std::span<const NameText> name_texts() {
  static constexpr NameText kTexts[] = {
${texts}  };
  return kTexts;
}

}  // namespace belfry
")
